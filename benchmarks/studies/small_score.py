"""Study of the named settings for machines without an accelerator on NetHack's score."""

from benchmarks.studies import small_search
from benchmarks.studies.base import Study

_INTRINSIC = tuple(f"episode/intrinsic_return/{kind}" for kind in ("online_cls", "online_motif"))
_BEHAVIOUR = ("episode/length", "episode/kills", "episode/gold", "episode/dlvl", "episode/xlvl")
_EMBEDDED = f"{small_search.EMBEDDED} --hidden_size 128"  # a smaller network, and 40 games
ALL_MESSAGES = "ranking_all_messages: --config small_ranking --remove_duplicated_obs False"

STUDY = Study(
    name="small_score",
    question="What do the rule-based judge's labels and preferences change on NetHack's score, on two cores?",
    cases=(
        "none: --config small_extrinsic",
        "retrieval: --config small_retrieval",
        "ranking: --config small_ranking",
        ALL_MESSAGES,
        "ranking_coeff_0.4: --config small_ranking --llm_reward_coeff 0.4 --remove_duplicated_obs False",
        f"embedded_none: --config score_extrinsic {_EMBEDDED}",
        f"embedded_retrieval: --config score_retrieval {_EMBEDDED}",
        f"embedded_ranking: --config score_ranking {_EMBEDDED} --reward_model_lr 1e-3 --reward_model_batch_size 64",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags="--num_workers 2 --train_for_env_steps 5000000 --log_every_sec 5 --answers judge",
    compared=("none: retrieval ranking*", "embedded_none: embedded_*"),
    drawn=("none retrieval ranking*", "embedded_*"),
    also=(*_INTRINSIC, *_BEHAVIOUR, "reward/tie_fraction"),
    left_out=2 * 64 * 5000,  # environments, and the limit of an episode
    note=(
        "No gain is shown, and preferences that pay too much cost most of the score. With `retrieval` return, "
        "kills, gold, depth and level are those of `none`: 0 [-7, 7] over the run. With preferences at 0.4 "
        "(`ranking_coeff_0.4`), the coefficient that is published for `retrieval` alone, the return is 37 [27, "
        "47] lower over the run, with a mark, there are 2.6 kills in an episode instead of 6.0, and the means of "
        "episodes are longer: over the run an episode's preferences pay, by the coefficients, 20 where its score "
        "pays 1.5. At a twentieth (`ranking_all_messages`, one seed so far) return and kills are near those of "
        "`none`. `ranking`, which `--config small_ranking` has now, also draws each message of a batch once "
        "(`--remove_duplicated_obs`), by which fewer pairs are ties. Two of its seeds end where `none` does; one "
        "ends at 291, with many more kills, in episodes of 2.3 times as many steps. Whether preferences help to "
        "that, or chance does, three seeds don't show: the intervals are wide, and 0 is in them. Read from the "
        "runs, which were not kept: that one ate much more often, so that probably it starves later; at 0.4 "
        "nearly all of the drawn pairs were ties, and at the end one of those three models ranked gold and kills "
        "highest, another scored all messages alike. Scores drift, and are normalised by the mean and deviation "
        "of all steps so far: at times nearly every message was paid for, at others nearly none. No more "
        "coefficients were searched, neither for labels: at the end an episode's labels pay 2.0 where its score "
        "pays 6.1. `embedded_...` are the same types with the network that the small settings had before "
        "small_minutes, at batches of 1,024, with four times as many pairs and gradient steps of the reward model "
        "a step: preferences at 0.4 cost about as large a part of the score there, 29 [10, 48], without a mark. "
        "The answers are those of fixed rules, not of an LLM. Other programs ran beside the first two runs of "
        "`none` and most of `embedded_...`; of `ranking_coeff_0.4` the last ran alone."
    ),
)
