"""Study of the named settings for machines without an accelerator on NetHack's score."""

from benchmarks.studies.base import Study

_INTRINSIC = tuple(f"episode/intrinsic_return/{kind}" for kind in ("online_cls", "online_motif"))
_EMBEDDED = "--encoder_custom nle_embedded_encoder --hidden_size 128"  # a smaller network, and 40 games

STUDY = Study(
    name="small_score",
    question="What do the rule-based judge's labels and preferences change on NetHack's score, on two cores?",
    cases=(
        "none: --config small_extrinsic",
        "retrieval: --config small_retrieval",
        "ranking: --config small_ranking",
        f"embedded_none: --config score_extrinsic {_EMBEDDED}",
        f"embedded_retrieval: --config score_retrieval {_EMBEDDED}",
        f"embedded_ranking: --config score_ranking {_EMBEDDED} --reward_model_lr 1e-3 --reward_model_batch_size 64",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags="--num_workers 2 --train_for_env_steps 5000000 --log_every_sec 5",
    also=(*_INTRINSIC, "episode/length", "episode/kills", "episode/gold", "episode/dlvl", "episode/xlvl"),
    left_out=2 * 64 * 5000,  # environments, and the limit of an episode
    note=(
        "No gain is seen. With the coefficients 0.4, which is published for `retrieval` alone, and the score's "
        "published 0.1, which were not searched, an episode's labels (`embedded_retrieval`) pay 1.5 where its "
        "score pays 4, and nothing is seen to change; its preferences (`embedded_ranking`) pay 20 where its "
        "score pays 2.5, and the score is learnt later, without a mark: episodes are longer and have fewer "
        "kills, as means over three seeds, whose intervals are wide. These are figures of a network chosen "
        "before small_minutes, where others learn more, and not of what `--config small_extrinsic` is now. The "
        "answers are those of fixed rules, not of an LLM. Other programs ran beside most of these."
    ),
)
