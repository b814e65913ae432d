"""Study of how many of a language model's answers a goal model needs, chosen how, and how right, on Crafter."""

from benchmarks.studies.base import Study
from benchmarks.studies.ellm import GOALS
from oni_jax.runs.curves import UNLOCKED

MADE = "train_dir/chosen_answers"
MODEL = f"{GOALS} model --reward_model_lr 1e-2 --reward_model_batch_size 512 --answers"
CHOSEN = [f"{way}_{number}" for number in (100, 300, 1000) for way in ("random", "uncertain")]

STUDY = Study(
    name="few_answers",
    question="From how few of a language model's answers, chosen how, and how wrong, does a goal model learn enough?",
    prepare=(f"benchmarks.chosen_answers --out {MADE}",),
    prepared=MADE,
    cases=(
        f"all_answers: {MODEL} recorded",
        *(f"{name}: {MODEL} {MADE}/{name}.jsonl.gz" for name in CHOSEN),
        *(f"wrong_{percent}_percent: {MODEL} {MADE}/wrong_{percent}_percent.jsonl.gz" for percent in (10, 30)),
    ),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-3"),
    flags=(
        "--train_for_env_steps 2000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 "
        "--extrinsic_reward_coeff 0 --log_every_sec 1 --crafter_dying off"
    ),
    metric=UNLOCKED,
)
