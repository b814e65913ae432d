"""Study of what pretraining on suggested goals is worth for a task of Crafter."""

from benchmarks.studies.base import Study

MADE = "train_dir/ellm_pretrained"

STUDY = Study(
    name="ellm_task",
    question="Does a policy that was pretrained on suggested goals help to learn a task whose reward is sparse?",
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
    note=(
        "The task pays 1 for a wooden pickaxe, and nothing on the way there. One pretrained policy, by the "
        "oracle's goals, serves all seeds: `tuned` goes on learning with it; `tuned_from_answers` does the same "
        "with a policy pretrained on the goals of a model of a language model's recorded answers, without an "
        "oracle: it succeeds as often. `guided` learns from scratch, while "
        "it acts at half of the steps at first, at none after 0.5 million: what is reached before is in part its "
        "success. From scratch the reward is hardly ever found. The pickaxe is among the goals of the "
        "pretraining, whose five million steps are not counted: `tuned` is asked for a goal that it has learnt "
        "already. None that was pretrained on all actions was measured. One pretrained policy says nothing of how "
        "much pretrained policies differ. Episodes go on without health (`--crafter_dying off`)."
    ),
)
