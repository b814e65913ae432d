"""Study of curiosity and of judged events on Crafter."""

from benchmarks.studies.base import Study
from oni_jax.reporting.curves import UNLOCKED

STUDY = Study(
    name="crafter",
    question="Does curiosity (RND), or do labels of events, help to unlock Crafter's achievements?",
    cases=(
        "none: --llm_reward_type none",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.01",
        "judge: --llm_reward_type online_cls --llm_reward_coeff 0.1",
        "rnd_alone: --llm_reward_type rnd --llm_reward_coeff 0.01 --extrinsic_reward_coeff 0",
        "judge_alone: --llm_reward_type online_cls --llm_reward_coeff 0.1 --extrinsic_reward_coeff 0",
        "count_alone: --llm_reward_type count --llm_reward_coeff 0.1 --extrinsic_reward_coeff 0",
        "count_states_alone: --llm_reward_type count --llm_reward_coeff 0.1 --caption state --extrinsic_reward_coeff 0",
    ),
    axes=("root_env=Crafter-v1", "seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 --log_every_sec 1"
    ),
    metric=UNLOCKED,
    compared=("count_alone: judge_alone count_states_alone",),
    note=(
        "The labels of `judge` are those of fixed rules on the events' words, not of an LLM; an event pays less "
        "each time in an episode. `..._alone`: without the reward of the world. No gain from labels beside that "
        "reward is seen: the world pays for each achievement already, and most events that the rules call helpful "
        "unlock one. Without it they unlock nearly as much as it does, 0.3 less over the run, without a mark. "
        "Most of that is not the labels' doing: `count_alone`, which pays every event and asks nobody, ends 0.61 "
        "[0.17, 1.05] below them, without a mark. `count_states_alone` pays captions of states so and unlocks "
        "half as much; curiosity about what is seen hardly anything. The coefficient of RND was not searched."
    ),
)
