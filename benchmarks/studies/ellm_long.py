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
    note=(
        "The goals, flags and cases are those of `ellm`, which ends after 5 million steps. The goals of a language "
        "model's answers, learnt by a network, end at 15.0 achievements, above the 11.9 that the oracle's goals "
        "unlock in 5 million steps. We found no difference to all actions as goals (-0.2 [-0.9, 0.6]) or to the "
        "oracle's goals (0.3 [-0.6, 1.2]): what the answers gain in 5 million steps, 1.6 achievements over all "
        "actions, is gone after 20 million. Other programs shared the cores with the runs."
    ),
)
