"""Study of one agent of several goals on NetHack, without its reward, on recorded answers of a language model."""

from benchmarks.studies.base import Study

GOALS = ("defaultgoal", "combat", "gold", "stairs")
STEPS_PER_GOAL = 5_000_000
TOGETHER = "four_goals"  # the case of one agent of all goals

STUDY = Study(
    name="steer",
    question=(
        "Does one agent do what its goal says: more kills under `combat` than under `gold`, and more gold under `gold` "
        "than under `combat`, as agents of one goal each, at equal steps per goal, do?"
    ),
    cases=(
        f"{TOGETHER}: --llm_reward_type online_cls --goal_key {','.join(GOALS)} --goal_conditioned",
        *(
            f"{goal}_alone: --llm_reward_type online_cls --goal_key {goal} --train_for_env_steps {STEPS_PER_GOAL}"
            for goal in GOALS
        ),
        f"every_message: --llm_reward_type count --train_for_env_steps {STEPS_PER_GOAL}",
        f"no_reward: --llm_reward_type none --llm_reward_coeff 0 --train_for_env_steps {STEPS_PER_GOAL}",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags=(
        "--config small_retrieval --answers recorded --extrinsic_reward_coeff 0 --llm_reward_coeff 0.4 --num_workers 2 "
        f"--log_every_sec 5 --train_for_env_steps {len(GOALS) * STEPS_PER_GOAL}"
    ),
    also=("episode/kills", "episode/gold", "episode/dlvl", "episode/xlvl"),
    left_out=2 * 64 * 5000,  # environments, and the limit of an episode
    note=(
        "The main contrast is of held-out episodes, which `python -m benchmarks.steering` plays by the final policies: "
        "kills under `combat` minus kills under `gold`, and gold under `gold` minus gold under `combat`, by the agent "
        f"of all goals; beside them the same between the agents of one goal each. `{TOGETHER}` has "
        f"{len(GOALS) * STEPS_PER_GOAL:,} steps, the others {STEPS_PER_GOAL:,}, so each goal has as many. Curves of "
        f"training are means over the episodes of all goals. Stairs are rare: of the answers under `stairs` fewer than "
        "one message in ten thousand of a game helps."
    ),
)
