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
    ),
    axes=few_labels.STUDY.axes,
    flags=few_labels.STUDY.flags.replace("--train_for_env_steps 5000000", "--train_for_env_steps 1000000"),
    compared=("classification_all", "ranking_all"),
    metric="success",
    levels=(),  # environments' episodes still end together, and the curves go up and down with them
    left_out=few_labels.STUDY.left_out,
    also=("labels_held", "reward/gradient_steps"),
    note=(
        "The study few_labels, where a reward model learns from the labels or preferences of fixed rules, not of "
        "an LLM. Much of the gain is not the answers': a minute late, none came before the end, and what "
        "untrained networks pay, less for each time that a caption is seen in an episode, already gains 0.20 and "
        "0.26 at the end, 0.22 and 0.27 over the run, without marks but for the last. An untrained classifier "
        "may call everything helpful, or nothing: three of its runs lie above all of `classification_all`, two "
        "at `no_reward`. What answers add is not shown: of labels 0.08 [-0.11, 0.27] at the end, and less than "
        "nothing over the run, -0.08 [-0.28, 0.11]; of preferences 0.17 [0.05, 0.29] and 0.07 [0.00, 0.14], "
        "without a mark. So no loss could be seen of few answers, of wrong ones or of late ones, and none is: 30 "
        "preferences end 0.055 lower than all, 30 labels 0.11, neither marked; nor do 5 to 30 % wrong answers, "
        "or a second, lose any. Preferences gain more than labels over the run, in most cases without a mark; so "
        "does their untrained network. Both take 4.5 to 10.5 times the time of `no_reward`. Labels bring 32 "
        "gradient steps each time that they come, and few come nearly at once: 30 bring 32 steps, where each of "
        "the policy's 122 updates leaves room for one. With 120 each time (`..._120_steps`) the means of 100 "
        "labels are above those of all, and of 1,000 below: nothing is shown of it. Pairs of equal captions are "
        "ties that nobody is asked about: the gradient steps of preferences before any answer have a gradient of "
        "0. The answers of `..._all` and what is late depend on the machine's speed."
    ),
)
