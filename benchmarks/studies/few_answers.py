"""Study of how few answers of a language model are enough for its goals on Crafter, and of wrong ones."""

from benchmarks.studies.base import Study
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
    question="How few answers of a language model are enough for its goals on Crafter, and how many may be wrong?",
    prepare=(f"benchmarks.chosen_answers --out {MADE}",),
    prepared=MADE,
    cases=tuple(f"{name}: {MODEL}/{name}.jsonl.gz" for name in FILES),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-3"),
    flags=ELLM.flags,
    compared=("random_300: uncertain_300", "random_1000: uncertain_1000", "random_3000: uncertain_3000 wrong_*"),
    metric=UNLOCKED,
    note="",
)
