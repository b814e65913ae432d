"""Study of the named settings for machines without an accelerator on NetHack's score."""

from benchmarks.studies.base import Study

_INTRINSIC = tuple(f"episode/intrinsic_return/{kind}" for kind in ("online_cls", "online_motif"))

STUDY = Study(
    name="small_score",
    question="What do the rule-based judge's labels and preferences change on NetHack's score, on two cores?",
    cases=("none: --config small_extrinsic", "retrieval: --config small_retrieval", "ranking: --config small_ranking"),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags="--num_workers 2 --train_for_env_steps 5000000 --log_every_sec 5",
    also=(*_INTRINSIC, "episode/length", "episode/kills", "episode/gold", "episode/dlvl", "episode/xlvl"),
    left_out=2 * 20 * 5000,  # environments, and the limit of an episode
    duration="hours",
    note=(
        "No gain is seen. With the coefficients 0.4, which is published for `retrieval` alone, and the score's "
        "published 0.1, which were not searched, an episode's labels (`retrieval`) pay 1.5 where its score pays "
        "4, and nothing is seen to change; its preferences (`ranking`) pay 20 where its score pays 2.5, and the "
        "score is learnt later, without a mark: episodes are longer and have fewer kills, as means over three "
        "seeds, whose intervals are wide. The network was chosen before small_minutes, where larger ones have "
        "higher means. The answers are those of fixed rules, not of an LLM. Other programs ran beside most of "
        "these."
    ),
)
