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
    note=(
        "The answers are part of a language model's recorded ones for Crafter's states; a network that learns from "
        "them suggests the goals, as `model` of `ellm` does with all 24,027, which unlocks 11.6 [11.1, 12.1] with "
        "five seeds, where no reward unlocks 1.2. Nine tenths of that gain are 10.6 achievements: 300 answers reach "
        "them where the answers are those that a model of the earlier ones is least certain of, and 3,000 where "
        "they are drawn at random; 1,000 drawn at random end at 10.5. Three seeds do not show that the two choices "
        "differ: at 100 answers the uncertain ones end lower, by 0.9 [0.1, 1.7], at 300 higher, by 0.8 [-0.1, 1.6], "
        "without marks. The network's agreement with answers held out says the opposite: 0.81 with 300 random "
        "answers, 0.65 with 300 uncertain ones. Wrong answers are those of other states, given to one state in ten, "
        "or in three of ten: the ends are 1.3 and 1.6 achievements below those with all answers right, which are "
        "of another study. With 100 answers as with 3,000 the table answers few steps: the network suggests the "
        "goals."
    ),
)
