"""Study of the named settings for machines without an accelerator on finding NetHack's stairs."""

from benchmarks.studies import small_score
from benchmarks.studies.base import Study

STUDY = Study(
    name="small_staircase",
    question="And where the world pays only for the stairs down?",
    cases=small_score.CASES,
    axes=("root_env=NetHackStaircaseExtendedActions-v1", small_score.SEEDS),
    flags=f"{small_score.FLAGS} --extrinsic_reward_coeff 10",
    metric="success",
    first_steps=small_score.FIRST_STEPS,
    duration="hours",
    also=small_score.BEHAVIOUR,
)
