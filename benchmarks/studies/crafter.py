"""Study of curiosity and of judged events on Crafter."""

from benchmarks.studies.base import Study
from oni_jax.runs.curves import UNLOCKED

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
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 --log_every_sec 1 "
        "--answers judge"
    ),
    metric=UNLOCKED,
    compared=("count_alone: judge_alone count_states_alone",),
    note=(
        "The labels of `judge` are those of fixed rules on the events' words, not of an LLM; an event pays an "
        "eighth the second time in an episode, and so on. `..._alone`: without the reward of the world. No gain "
        "from labels beside that reward is seen: the world pays for each achievement already, and all events that "
        "the rules call helpful belong to one. Without it they end 0.5 [0.0, 1.0] below it, 0.34 [0.01, 0.67] "
        "over the run, without marks. Most of that is not the labels' doing: `count_alone`, which pays every "
        "event in the same way and asks nobody, is 0.61 [0.17, 1.05] below them at the end, 0.36 [0.10, 0.61] "
        "over the run, without marks. Labels differ from it in six events alone, which pay nothing: four moves, "
        "to sleep and to do nothing; the others are the achievements, so that this can't show what an LLM would "
        "add. Labels of states were not measured; `count_states_alone`, which pays every caption of a state, "
        "unlocks half as much as `count_alone`, and curiosity about what is seen less (no reward: few_events). "
        "The coefficient of RND was not searched. The runs of the two counts are of later commits."
    ),
)
