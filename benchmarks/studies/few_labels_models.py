"""Study of how many labels or preferences it takes, how right and how soon, where a model learns the reward of them."""

from benchmarks.studies import few_labels, judged
from benchmarks.studies.base import Contrast, Study

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
    title="Reward models on BabyAI-Text",
    question="How few labels or preferences by fixed rules does a reward model need?",
    answer="30 preferences end above paying every caption alike; for labels we found no such gain, and for reasons not "
    "known no loss with half of them wrong.",
    contrasts=(Contrast("ranking_all", "count", beforehand=False),),
    shown={
        "ranking_all": "all preferences, some 1,100",
        "ranking_at_most_30": "at most 30 preferences",
        "classification_all": "all labels, some 4,800",
        "classification_wrong_50_percent": "half of the labels wrong",
        "count": "every caption pays alike",
        "no_reward": "no reward",
    },
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
        f"classification_wrong_50_percent: {_TYPES['classification']} --judge_wrong_fraction 0.5",  # chance level
        f"ranking_wrong_67_percent: {_TYPES['ranking']} --judge_wrong_fraction 0.667",  # chance level of three choices
    ),
    axes=few_labels.STUDY.axes,
    flags=few_labels.STUDY.flags.replace("--train_for_env_steps 5000000", "--train_for_env_steps 1000000"),
    metric="success",
    left_out=few_labels.STUDY.left_out,
    also=("labels_held",),
    notes=(
        "Fixed rules, not an LLM, gave the labels and preferences from which a reward model learns.",
        "`count` loses its gain in more steps: see `few_labels`.",
        "Why wrong labels may do better than right ones is not known. A caption pays less each time that it is seen in "
        "an episode.",
        "With a delay of a minute no answer arrives before the end. The classifier stays untrained, and calls "
        "everything helpful, or nothing.",
        "`..._120_steps` takes 120 gradient steps each time that labels come, in place of 32.",
    ),
)
