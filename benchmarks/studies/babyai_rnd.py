"""Study of curiosity and of judged captions on BabyAI-Text."""

from benchmarks.studies.base import Study

STUDY = Study(
    name="babyai_rnd",
    question="Does curiosity (RND), or do the rule-based judge's labels, help to learn tasks of BabyAI-Text?",
    cases=(
        "none: --llm_reward_type none",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.01",
        "judge: --llm_reward_type online_cls --llm_reward_coeff 0.01",
    ),
    axes=("root_env=BabyAI-Text-GoToLocal-RedBall-S20,BabyAI-Text-PickUp-RedBall-S20", "seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --encoder_custom mlp_encoder --hidden_size 128 "
        "--use_rnn False --learning_rate 1e-3 --log_every_sec 0.25"
    ),
    metric="success",
    left_out=256 * 400,  # environments, and the limit of an episode; all that end earlier succeed
    note=(
        "No difference has a mark; RND may cost 0.02 at the end of PickUp. The labels of `judge` are those of "
        "fixed rules, which read no colour and no kind, not of an LLM. The coefficients and the learning rate "
        "were chosen by one run each."
    ),
)
