"""Study of one agent of several goals on BabyAI-Text: kinds of things to go near, on recorded answers."""

from benchmarks.studies.base import Pair, Study

GOALS = ("keys", "balls", "boxes")
STEPS_PER_GOAL = 4_000_000
TOGETHER = "three_goals"
_LABELS = "--llm_reward_type online_cls --llm_reward_coeff 1"
PAIRS = tuple(
    Pair(f"intrinsic_return/online_cls_{goal}", goal, other) for goal, other in zip(GOALS, (*GOALS[1:], GOALS[0]))
)

STUDY = Study(
    name="steer_babyai",
    title="One agent, several goals, on BabyAI-Text",
    question="Does one agent go near the things that its goal names, on BabyAI-Text?",
    answer="Yes: each goal's labels pay most under that goal.",
    contrasts=tuple(pair.contrast() for pair in PAIRS),
    shown={
        TOGETHER: "one agent of three goals",
        "keys_alone": "an agent of keys",
        "every_caption": "every caption pays alike",
        "no_reward": "no reward",
    },
    cases=(
        f"{TOGETHER}: {_LABELS} --goal_key {','.join(GOALS)} --goal_conditioned",
        *(f"{goal}_alone: {_LABELS} --goal_key {goal} --train_for_env_steps {STEPS_PER_GOAL}" for goal in GOALS),
        f"every_caption: --llm_reward_type count --llm_reward_coeff 0.1 --train_for_env_steps {STEPS_PER_GOAL}",
        f"no_reward: --llm_reward_type none --train_for_env_steps {STEPS_PER_GOAL}",
    ),
    axes=("root_env=BabyAI-Text-GoToLocal-Pretraining-S20", "seed=1-3"),
    flags=(
        "--babyai_size 8 --max_episode_steps 32 --extrinsic_reward_coeff 0 --caption event --answers recorded "
        "--batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 --encoder_custom mlp_encoder "
        "--hidden_size 128 --use_rnn False --learning_rate 1e-3 --log_every_sec 0.25 "
        f"--train_for_env_steps {len(GOALS) * STEPS_PER_GOAL}"
    ),
    metric="success",
    played={f"intrinsic_return/online_cls_{goal}": f"pay for {goal}" for goal in GOALS}
    | {"success": "success, which nobody pays for"},
    notes=(
        "`python -m benchmarks.steering --study steer_babyai --episodes 256 --out "
        "benchmarks/studies/steer_babyai_episodes.json` plays the held-out episodes.",
        "At as many steps for each goal, the one agent is paid at least as much as the agents of one goal.",
        "The labels are a language model's, of the 118 events that the rooms have.",
        "An episode has 32 steps in a small room, so that a choice costs. With 400 steps in a room of 20 cells one run "
        "went near everything under each goal.",
        "Those, the coefficient and the number of updates were chosen by trials of one run.",
        "`every_caption` has a coefficient of 0.1, so that an episode pays about as much.",
    ),
)
