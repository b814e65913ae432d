"""Study of the named settings for machines without an accelerator on NetHack's score."""

from benchmarks.studies.base import Contrast, Study

STUDY = Study(
    name="small_score",
    title="Labels and preferences on NetHack's score",
    question="Do labels or preferences by fixed rules raise NetHack's score?",
    answer="No: with labels we found no difference in 5 million steps, for reasons not known, and preferences with the "
    "coefficient 0.4 lose most of the score.",
    contrasts=(Contrast("retrieval", "none", beforehand=False),),
    shown={
        "none": "the score alone",
        "retrieval": "labels",
        "ranking": "preferences, coefficient 0.02",
        "ranking_all_messages": "preferences, coefficient 0.02, all messages drawn",
        "ranking_coeff_0.4": "preferences, coefficient 0.4",
    },
    cases=(
        "none: --config small_extrinsic",
        "retrieval: --config small_retrieval",
        "ranking: --config small_ranking",
        "ranking_all_messages: --config small_ranking --remove_duplicated_obs False",
        "ranking_coeff_0.4: --config small_ranking --llm_reward_coeff 0.4 --remove_duplicated_obs False",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-3"),
    flags="--num_workers 2 --train_for_env_steps 5000000 --log_every_sec 5 --answers judge",
    also=("episode/length", "episode/kills", "episode/gold", "episode/dlvl"),
    left_out=2 * 64 * 5000,  # environments, and the limit of an episode
    notes=(
        "The cases are `--config small_extrinsic`, `small_retrieval` and `small_ranking`. Fixed rules, not an LLM, "
        "gave the labels and preferences.",
        "With the coefficient 0.4 preferences pay 13 times what the score pays. The reward model's scores drift, so "
        "that at times every message pays.",
        "One run of `ranking` ends at 291, with more kills in longer episodes. Three seeds don't show whether "
        "preferences or chance did that.",
        "No other coefficients were searched.",
    ),
)
