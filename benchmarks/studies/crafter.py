"""Study of curiosity and of judged events on Crafter."""

from benchmarks.studies.base import Contrast, Study
from oni_jax.runs.curves import UNLOCKED

STUDY = Study(
    name="crafter",
    title="Labels of events on Crafter",
    question="Do labels of events by fixed rules help on Crafter?",
    answer="Not when added to its reward, which pays for the same events; alone they do, but paying every event alike "
    "does nearly as much.",
    contrasts=(Contrast("judge", "none", beforehand=False),),
    shown={
        "none": "the world's reward",
        "judge": "the world's reward and labels",
        "rnd": "the world's reward and curiosity (RND)",
        "judge_alone": "labels alone",
        "count_alone": "every event pays alike",
        "rnd_alone": "curiosity (RND) alone",
    },
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
    notes=(
        "Fixed rules, not an LLM, gave the labels. An event pays an eighth the second time in an episode.",
        "All events that the rules call helpful belong to an achievement, which the world pays for already.",
        "Labels differ from `count_alone` in six events: four moves, sleep and no action. So the study can't show "
        "what an LLM would add.",
        "`count_states_alone` pays every caption of a state.",
        "The coefficient of RND was not searched.",
    ),
)
