"""Study of the goals of a model of recorded answers on Crafter, four times as long as `ellm`."""

from benchmarks.studies.base import Contrast, Study
from benchmarks.studies.ellm import STUDY as ELLM

CASES = {case.partition(":")[0]: case for case in ELLM.cases}

STUDY = Study(
    name="ellm_long",
    title="Goals on Crafter, four times as long",
    question="Do a language model's goals still lead after 20 million steps on Crafter?",
    answer="No: we found no difference from all actions as goals, which catch up.",
    contrasts=(Contrast("model", "all_actions", beforehand=False),),
    shown={
        "model": "goals by a network that learnt from an LLM's answers",
        "oracle": "goals by the world's rules",
        "all_actions": "all actions as goals, no LLM",
    },
    cases=(CASES["model"], CASES["all_actions"], CASES["oracle"]),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-3"),
    flags=ELLM.flags.replace("--train_for_env_steps 5000000", "--train_for_env_steps 20000000"),
    metric=ELLM.metric,
    notes=(
        "The cases and flags are those of `ellm`, which ends after 5 million steps.",
        "All actions as goals gain later what the answers gain by then.",
    ),
)
