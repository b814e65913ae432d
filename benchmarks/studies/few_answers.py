"""Study of how few answers of a language model are enough for its goals on Crafter, and of wrong ones."""

from benchmarks.studies.base import Contrast, Study
from benchmarks.studies.ellm import GOALS
from benchmarks.studies.ellm import STUDY as ELLM
from oni_jax.runs.curves import UNLOCKED

MADE = "train_dir/chosen_answers"
MODEL = f"{GOALS} model --reward_model_lr 1e-2 --reward_model_batch_size 512 --answers {MADE}"
FILES = (
    *(f"{how}_{number}" for number in (100, 300, 1000, 3000) for how in ("random", "uncertain")),
    *(f"wrong_{percent}_percent" for percent in (10, 30)),
)

STUDY = Study(
    name="few_answers",
    title="How few answers are enough for goals",
    question="How few answers of a language model are enough for goals on Crafter?",
    answer="We found no difference between 300 and 3,000, but three seeds leave a loss of two achievements possible.",
    contrasts=(Contrast("random_300", "random_3000", beforehand=False),),
    shown={
        "random_100": "100 answers",
        "random_300": "300 answers",
        "uncertain_300": "300 answers, uncertain states",
        "random_1000": "1,000 answers",
        "random_3000": "3,000 answers",
        "wrong_30_percent": "24,027 answers, 30 % wrong",
    },
    prepare=(f"benchmarks.chosen_answers --out {MADE}",),
    prepared=MADE,
    cases=tuple(f"{name}: {MODEL}/{name}.jsonl.gz" for name in FILES),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-3"),
    flags=ELLM.flags,
    metric=UNLOCKED,
    notes=(
        "The answers are drawn from the 24,027 recorded ones. A network learns from them, as `model` of `ellm` does.",
        "`ellm` has the results with all answers and with no reward. Even 100 random answers give four fifths of the "
        "gain from the one to the other.",
        "`uncertain_...` chooses the states of which a model of the earlier answers is least certain. We found no "
        "difference from a random choice.",
        "A wrong answer is that of another state. With 10 and 30 % of all answers wrong, runs end 1.3 and 1.6 "
        "achievements below `model` of `ellm`.",
    ),
)
