"""Study of how many labels or preferences it takes, how right and how soon, where a model learns the reward of them."""

from benchmarks.studies import few_labels, judged
from benchmarks.studies.base import Study

_MODEL = "--llm_reward_coeff 0.1 --reward_model_batch_size 64 --reward_model_lr 1e-3"
_TYPES = {
    "classification": f"--llm_reward_type online_cls_reward_model {_MODEL}",
    "ranking": f"--llm_reward_type online_motif {_MODEL}",
}
_CHANGES = {
    "all": "",
    **{f"at_most_{cap}": f" --llm_max_labels {cap}" for cap in (30, 100, 300, 1000)},
    **{f"wrong_{percent}_percent": f" --judge_wrong_fraction {percent / 100:g}" for percent in (5, 10, 20, 30)},
    **{f"late_{secs}_s": f" --judge_latency_secs {secs}" for secs in (1, 10, 60)},
}

STUDY = Study(
    name="few_labels_models",
    question="From how few answers, how wrong and how late, where a model learns the reward from them?",
    cases=(
        "no_reward: --llm_reward_type none",
        judged.COUNT,
        *(f"{kind}_{name}: {flags}{more}" for kind, flags in _TYPES.items() for name, more in _CHANGES.items()),
        f"classification_all_120_steps: {_TYPES['classification']} --reward_model_gradient_steps_per_update 120",
        *(
            f"classification_at_most_{cap}_120_steps: {_TYPES['classification']} --llm_max_labels {cap} "
            "--reward_model_gradient_steps_per_update 120"
            for cap in (100, 1000)
        ),
        f"classification_wrong_50_percent: {_TYPES['classification']} --judge_wrong_fraction 0.5",  # by chance
        f"ranking_wrong_67_percent: {_TYPES['ranking']} --judge_wrong_fraction 0.667",  # of three choices
    ),
    axes=few_labels.STUDY.axes,
    flags=few_labels.STUDY.flags.replace("--train_for_env_steps 5000000", "--train_for_env_steps 1000000"),
    compared=("classification_all: count classification_*", "ranking_all: count ranking_*"),
    drawn=tuple(
        f"no_reward count {kind}_all* {kind}_{changed}"
        for kind in _TYPES
        for changed in ("at_most_*", "wrong_*", "late_*")
    ),
    metric="success",
    levels=(),  # environments' episodes still end together, and the curves go up and down with them
    left_out=few_labels.STUDY.left_out,
    also=("labels_held", "reward/gradient_steps"),
    note=(
        "The study few_labels, where a reward model learns from the labels or preferences of fixed rules, not of "
        "an LLM. Most of the gain is not the answers': `count`, which pays every caption, less for each time that "
        "it is seen in an episode, and asks nobody, gains 0.26 at the end and 0.33 over the run (in five times as "
        "many steps it loses that again: few_labels). Preferences end 0.17 [0.11, 0.22] above it, with a mark, "
        "and are its equals over the run. Of labels no difference to it is seen at the end, and over the run they "
        "are 0.19 [0.07, 0.31] below it, without a mark: they leave fewer captions to pay for. So of labels no "
        "gain is shown that is theirs. Nor is a loss shown where the answers are wrong: with half of the labels "
        "wrong, which is chance, the end is 0.16 [0.02, 0.30] above that of right ones, and the mean over the run "
        "0.16 [0.04, 0.29], without marks; with two thirds of the preferences wrong, chance too, 0.10 [-0.02, "
        "0.22] below, without a mark. Perhaps a model of any labels is enough here, as what it pays falls with "
        "each time that a caption is seen in an episode; why wrong labels may do better is not known. No loss of "
        "few, wrong or late ones is marked. 30 and 100 preferences end 0.055 and 0.07 lower than all, and those "
        "late by a minute 0.17; the intervals leave 0 out, without marks. 300 and 1,000 lose nothing that is "
        "seen. 30 labels end 0.11 lower, whose interval contains 0. 5 to 30 % wrong answers, or a second, lose "
        "nothing that is seen. A minute late, none came before the end, and untrained networks pay: a classifier "
        "calls everything helpful or nothing, so that three of its runs are as `count` and two as `no_reward`. "
        "Labels take 4.5 to 12 times the time of `no_reward`, preferences 5.2 to 11, the slowest on another "
        "machine. Labels bring 32 gradient steps each time that they come, and few come nearly at once: 30 bring "
        "32 steps, where each of the policy's 123 updates leaves room for one. With 120 each time "
        "(`..._120_steps`) the means of 100 labels are above those of all with 120, and of 1,000 below: nothing "
        "is shown of it. Pairs of equal captions are ties that nobody is asked about: the gradient steps of "
        "preferences before any answer have a gradient of 0. How many answers the cases without a cap get, and "
        "what is late, depends on the machine's speed."
    ),
)
