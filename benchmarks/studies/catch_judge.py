"""Study of judged captions on Catch: small enough to be run again on any machine."""

from benchmarks.studies.base import Study

STUDY = Study(
    name="catch_judge",
    question="Do the rule-based judge's labels help to learn Catch, where each one is about the way to the reward?",
    cases=("none: --llm_reward_type none", "judge: --llm_reward_type online_cls --llm_reward_coeff 0.1"),
    axes=("seed=1-5",),
    flags=(
        "--root_env Catch-v0 --train_for_env_steps 120000 --actor_pool serial --num_envs_per_worker 32 "
        "--worker_num_splits 1 --batch_size 512 --rollout 16 --recurrence 16 --encoder_custom mlp_encoder "
        "--hidden_size 64 --learning_rate 2e-3 --gamma 0.95 --log_every_sec 0.05 --save_every_sec 0"
    ),
    note="The labels of `judge` are those of fixed rules, not of an LLM. No difference is seen: Catch is learnt "
    "within seconds without them. The best return is 1.",
)
