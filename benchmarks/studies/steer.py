"""Study of one agent of several goals on NetHack, without its reward, on recorded answers of a language model."""

from benchmarks.studies.base import Pair, Study

GOALS = ("defaultgoal", "combat", "gold", "stairs")
STEPS_PER_GOAL = 5_000_000
TOGETHER = "four_goals"  # the case of one agent of all goals
PAIRS = (Pair("kills", "combat", "gold"), Pair("gold", "gold", "combat"))

STUDY = Study(
    name="steer",
    title="One agent, several goals, on NetHack",
    question="Does one agent do what its goal says, on NetHack?",
    answer="In part: under combat it kills nearly twice as often in 1,000 steps as under gold, but not more in an "
    "episode.",
    contrasts=tuple(pair.contrast() for pair in PAIRS),
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
        "`python -m benchmarks.steering --out benchmarks/studies/steer_episodes.json` plays 64 held-out episodes of "
        "each policy.",
        "Kills in 1,000 steps, combat minus gold: 6.3 [3.4, 9.3]; this contrast was not named before the runs.",
        "What the labels of a goal pay in an episode, under it and at most under another: gold 1.49 and 1.31, stairs "
        "1.18 and 0.64, combat 6.88 and 6.89.",
        "Fights end episodes sooner.",
        "Under stairs it goes deepest, under gold it explores most.",
        f"`{TOGETHER}` has {len(GOALS) * STEPS_PER_GOAL:,} steps, the others {STEPS_PER_GOAL:,}: as many for each "
        f"goal.",
        "Curves of training are means over the episodes of all goals.",
        "Stairs are rare: fewer than one message in ten thousand helps under `stairs`.",
    ),
)
