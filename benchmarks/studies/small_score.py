"""Study of the named settings for machines without an accelerator on NetHack's score."""

from benchmarks.studies.base import Study

STUDY = Study(
    name="small_score",
    question="What do the rule-based judge's labels and preferences change on NetHack's score, on two cores?",
    cases=("none: --config small_extrinsic", "retrieval: --config small_retrieval", "ranking: --config small_ranking"),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags="--num_workers 2 --train_for_env_steps 5000000 --log_every_sec 5",
    left_out=2 * 20 * 5000,  # environments, and the limit of an episode
    duration="hours",
    note=(
        "One seed of two cases so far, which says nothing of what the labels do: returns swing by twenty from one "
        "million steps to the next. Tests ran beside these, so the minutes are too many: alone, two runs at a time "
        "take some 4,500 steps a second each."
    ),
    also=("episode/length", "episode/kills", "episode/gold", "episode/dlvl", "episode/xlvl"),
)
