"""Study of what pretraining on suggested goals is worth for a task of Crafter."""

from benchmarks.studies.base import Contrast, Study

MADE = "train_dir/ellm_pretrained"

STUDY = Study(
    name="ellm_task",
    title="Pretraining on goals for a sparse task",
    question="Does pretraining on a language model's goals help with a sparse reward?",
    answer="Yes: after pretraining nearly every episode makes the wooden pickaxe; from scratch hardly any does.",
    contrasts=(Contrast("tuned_from_answers", "scratch", beforehand=False),),
    shown={
        "tuned_from_answers": "pretrained on goals of an LLM's answers",
        "tuned": "pretrained on goals of the world's rules",
        "guided": "from scratch, guided by the policy of the rules",
        "scratch": "from scratch",
    },
    prepare=(
        f"launch.train --config ellm_oracle --train_dir {MADE} --experiment oracle --train_for_env_steps 5000000 "
        "--crafter_dying off",
        f"launch.train --config ellm_llm --answers recorded --train_dir {MADE} --experiment answers "
        "--train_for_env_steps 5000000 --crafter_dying off",
    ),
    prepared=MADE,
    cases=(
        "scratch: --llm_reward_type none",
        f"tuned: --init_from {MADE}/oracle",
        f"guided: --guide {MADE}/oracle --guide_steps 500000",
        f"tuned_from_answers: --init_from {MADE}/answers",
    ),
    axes=("seed=1-5",),
    flags=(
        "--config ellm_task --crafter_task 'make wood pickaxe' --train_for_env_steps 1000000 --log_every_sec 0.5 "
        "--crafter_dying off"
    ),
    metric="success",
    left_out=256 * 400,  # environments, and their episodes: of those that end earlier all succeed
    notes=(
        "The task pays 1 for a wooden pickaxe, and nothing before.",
        "The pickaxe is among the goals of the pretraining, whose five million steps are not counted.",
        "One pretrained policy serves all seeds: how much pretrained policies differ was not measured.",
        "The guide acts at half of the steps at first, and at none after 0.5 million. Earlier success is partly the "
        "guide's.",
        "A policy pretrained on all actions as goals was not measured.",
        "Episodes go on without health (`--crafter_dying off`), an option of the published configuration.",
    ),
)
