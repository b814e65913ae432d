"""Study of the named settings for machines without an accelerator on finding NetHack's stairs."""

import dataclasses

from benchmarks.studies import small_score

STUDY = dataclasses.replace(
    small_score.STUDY,
    name="small_staircase",
    question="And where the world pays only for the stairs down?",
    axes=("root_env=NetHackStaircaseExtendedActions-v1", *small_score.STUDY.axes[1:]),
    flags=f"{small_score.STUDY.flags} --extrinsic_reward_coeff 10",
    metric="success",
    note=(
        "No difference is found, and little is learnt: at the end 4 % of the episodes get down without answers, "
        "8 % with them. Over the run labels get there 2.0 times, preferences 1.6 times as often as "
        "`embedded_none` does, as means over three seeds; the intervals contain 0. More steps, or another "
        "coefficient of the answers than 0.4, were not tried. The answers are those of fixed rules, not of an "
        "LLM."
    ),
)
