"""Study of one agent of several goals on NetHack, without its reward, on recorded answers of a language model."""

from benchmarks.studies.base import Contrast, Study

GOALS = ("defaultgoal", "combat", "gold", "stairs")
STEPS_PER_GOAL = 5_000_000
TOGETHER = "four_goals"  # the case of one agent of all goals

STUDY = Study(
    name="steer",
    title="One agent, several goals, on NetHack",
    question="Does one agent do what its goal says, on NetHack?",
    answer="Two seeds don't show it by episodes; by steps it kills about twice as often under combat as under gold.",
    contrasts=(
        Contrast("all goals, under combat", "all goals, under gold", "kills", held_out=True),
        Contrast("all goals, under gold", "all goals, under combat", "gold", held_out=True),
    ),
    shown={
        TOGETHER: "one agent of four goals",
        "combat_alone": "an agent of combat",
        "gold_alone": "an agent of gold",
        "every_message": "every message pays alike",
        "no_reward": "no reward",
    },
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
    played={
        "kills": "kills",
        "kills in 1,000 steps": "kills in 1,000 steps",
        "gold": "gold",
        "depth": "depth",
        "length": "steps",
    },
    left_out=2 * 64 * 5000,  # environments, and the limit of an episode
    notes=(
        "`python -m benchmarks.steering --out benchmarks/studies/steer_episodes.json` plays the held-out episodes of "
        "the main contrasts by the final policies.",
        "Kills in 1,000 steps, by seed: under combat 16.3 and 10.1, under gold 10.4 and 4.7, under stairs 4.9 and 3.2.",
        "Kills in an episode: 20.3 and 5.8, 11.3 and 8.8, 10.1 and 4.1; the second agent dies early in fights.",
        "Gold in an episode: under gold 6.1 and 4.8, under combat 4.6 and 3.8; under stairs 5.4 and 11.9.",
        "Under gold and stairs it explores more squares than under combat; under stairs it goes deepest.",
        "Not run yet: the third seed, and the agents of one goal each.",
        f"`{TOGETHER}` has {len(GOALS) * STEPS_PER_GOAL:,} steps, the others {STEPS_PER_GOAL:,}: as many for each "
        f"goal.",
        "Curves of training are means over the episodes of all goals.",
        "Stairs are rare: fewer than one message in ten thousand helps under `stairs`.",
    ),
)
