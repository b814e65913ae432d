"""Study of the three potentials of BK on BabyAI-Text."""

from benchmarks.studies import babyai_rnd
from benchmarks.studies.base import Study

MADE = "train_dir/bk_potentials"
WORLD = "--root_env BabyAI-Text-GoToLocal-Pretraining-S20"
SHAPED = "--llm_reward_coeff 0.3 --extrinsic_reward_coeff 10"

STUDY = Study(
    name="bk",
    question="Does shaping by a potential (BK) save steps on tasks of BabyAI-Text that its author did not know?",
    prepare=(
        f"launch.collect_segments --policy random {WORLD} --episodes 50 --directory {MADE}/segments",
        f"launch.annotate_segments {WORLD} --segments {MADE}/segments --reward_dir {MADE}/pref --num_pairs 5000",
        f"launch.train_potential {WORLD} --reward_dir {MADE}/pref --encoder_custom mlp_encoder --hidden_size 128 "
        "--width 64 --num_epochs 20",
        f"launch.write_goals {WORLD} --segments {MADE}/segments --reward_dir {MADE}/goals",
    ),
    prepared=MADE,
    cases=(
        "none: --llm_reward_type none",
        "none_10: --llm_reward_type none --extrinsic_reward_coeff 10",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.01",
        f"code: --llm_reward_type bk-code --reward_dir benchmarks/studies/judge_potential {SHAPED}",
        f"pref: --llm_reward_type bk-pref --reward_dir {MADE}/pref {SHAPED}",
        f"goal: --llm_reward_type bk-goal --reward_dir {MADE}/goals --potential_embeddings grams "
        f"--potential_goal_threshold 0.8 {SHAPED}",
    ),
    axes=babyai_rnd.STUDY.axes,
    flags=babyai_rnd.STUDY.flags,
    compared=("none_10",),
    metric="success",
    left_out=babyai_rnd.STUDY.left_out,
    note=(
        "The code in `benchmarks/studies/judge_potential`, the preferences and the goals are the rule-based judge's, "
        "not an LLM's: new things near are good, whatever they are. The runs of `none` and `rnd` are those of "
        "babyai_rnd. The coefficient was chosen from 0.3 and 1 by one run each, of `code`; the threshold of the goals "
        "was not. Expected was that a potential halves the steps to 80 %: it does so for 50 % of PickUp, which take a "
        "quarter to a third, but those to 80 % are only 14 to 21 % fewer there, and 13 to 24 % on GoToLocal. What is "
        "left to learn by then is the colour that was asked for, of which the potentials know nothing."
    ),
)
