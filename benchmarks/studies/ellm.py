"""Study of ELLM's suggested goals and of curiosity on Crafter, without a reward of the world's."""

from benchmarks.studies.base import Contrast, Study
from oni_jax.runs.curves import UNLOCKED

GOALS = "--llm_reward_type ellm --llm_reward_coeff 1 --goal_conditioned --goal_suggester"

STUDY = Study(
    name="ellm",
    title="Goals on Crafter, without its reward",
    question="Which goals unlock Crafter's achievements without its reward?",
    answer="Goals of a network that learnt from a language model's recorded answers unlock more than the answers "
    "alone, and more than all actions as goals.",
    contrasts=(Contrast("model", "all_actions"),),
    shown={
        "model": "goals by a network that learnt from an LLM's answers",
        "answers": "goals by an LLM's answers alone",
        "oracle": "goals by the world's rules",
        "all_actions": "all actions as goals, no LLM",
        "rnd": "curiosity (RND)",
        "no_reward": "no reward",
    },
    cases=(
        "no_reward: --llm_reward_type none",
        f"oracle: {GOALS} oracle",
        f"judge: {GOALS} llm --answers judge",
        f"all_actions: {GOALS} all",
        f"novelty: {GOALS} all --goal_success tried",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.1",
        "noveld: --llm_reward_type noveld --llm_reward_coeff 0.1",
        "apt: --llm_reward_type apt --llm_reward_coeff 0.1",
        f"answers: {GOALS} llm --answers recorded",
        f"model: {GOALS} model --answers recorded --reward_model_lr 1e-2 --reward_model_batch_size 512",
    ),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 "
        "--extrinsic_reward_coeff 0 --log_every_sec 1 --crafter_dying off"
    ),
    metric=UNLOCKED,
    notes=(
        "`model` learns from the recorded answers while the policy trains; it suggests goals in states that are seen "
        "for the first time.",
        "`answers` looks up the state's caption: 9 of 10 steps have an answer, the others are in new and rare states.",
        "`oracle` suggests the goals whose prerequisites the state meets. `judge` suggests by fixed rules on the "
        "caption's words.",
        "`all_actions` has the names of all 139 actions as goals. `novelty` has the same goals, and trying an action "
        "reaches its goal (the published baseline).",
        "We found no difference between `model` and `oracle`, nor between `answers` and `judge`.",
        "Why all actions as goals unlock more than the goals of `judge` is not known.",
        "The coefficients of curiosity were not searched.",
        "Episodes go on without health (`--crafter_dying off`), an option of the published configuration.",
        "The runs of `all_actions` are older than the main contrast; those of `model` are not.",
    ),
)
