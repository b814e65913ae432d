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
    note="",
)
