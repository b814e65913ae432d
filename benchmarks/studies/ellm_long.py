"""Study of the goals of a model of recorded answers on Crafter, four times as long as `ellm`."""

from benchmarks.studies.base import Study
from benchmarks.studies.ellm import STUDY as ELLM

CASES = {case.partition(":")[0]: case for case in ELLM.cases}

STUDY = Study(
    name="ellm_long",
    question="What do goals unlock on Crafter in 20 million steps, without any reward of the world's?",
    cases=(CASES["model"], CASES["all_actions"], CASES["oracle"]),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-3"),
    flags=ELLM.flags.replace("--train_for_env_steps 5000000", "--train_for_env_steps 20000000"),
    compared=("oracle",),
    metric=ELLM.metric,
    note="",
)
