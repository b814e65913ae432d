"""Study of the three potentials of BK on BabyAI-Text."""

from benchmarks.studies.base import OVER_THE_RUN, Contrast, Study

MADE = "train_dir/bk_potentials"
TASKS = ("BabyAI-Text-GoToLocal-RedBall-S20", "BabyAI-Text-PickUp-RedBall-S20")
FLAGS = (
    "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --encoder_custom mlp_encoder --hidden_size 128 "
    "--use_rnn False --learning_rate 1e-3 --log_every_sec 0.25"
)
LEFT_OUT = 256 * 400  # environments, and the limit of an episode; all that end earlier succeed
WORLD = "--root_env BabyAI-Text-GoToLocal-Pretraining-S20"
SHAPED = "--llm_reward_coeff 0.3 --extrinsic_reward_coeff 10"
CODE = "--llm_reward_type bk-code --reward_dir benchmarks/studies/judge_potential"

STUDY = Study(
    name="bk",
    title="Potentials (BK) on BabyAI-Text",
    question="Does a potential (BK) by fixed rules save steps on BabyAI-Text?",
    answer="No: at equal weight of the task's reward we found no difference; the rules ignore the colour asked for.",
    contrasts=(Contrast("code", "none_10", summary=OVER_THE_RUN, task=TASKS[1], beforehand=False),),
    shown={
        "none": "the task's reward alone, weight 1",
        "none_10": "the task's reward alone, weight 10",
        "code": "potential in code, coefficient 0.3",
        "code_1": "potential in code, coefficient 1",
        "pref": "potential from preferences",
        "goal": "potential from goals",
    },
    prepare=(
        f"launch.collect_segments --policy random {WORLD} --episodes 50 --directory {MADE}/segments",
        f"launch.annotate_segments {WORLD} --segments {MADE}/segments --reward_dir {MADE}/pref --num_pairs 5000 "
        "--answers judge",
        f"launch.train_potential {WORLD} --reward_dir {MADE}/pref --encoder_custom mlp_encoder --hidden_size 128 "
        "--width 64 --num_epochs 20",
        f"launch.write_goals {WORLD} --segments {MADE}/segments --reward_dir {MADE}/goals --answers judge",
    ),
    prepared=MADE,
    cases=(
        "none: --llm_reward_type none",
        "none_10: --llm_reward_type none --extrinsic_reward_coeff 10",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.01",
        f"code: {CODE} {SHAPED}",
        f"code_1: {CODE} --llm_reward_coeff 1 --extrinsic_reward_coeff 10",
        f"pref: --llm_reward_type bk-pref --reward_dir {MADE}/pref {SHAPED}",
        f"goal: --llm_reward_type bk-goal --reward_dir {MADE}/goals --potential_embeddings grams "
        f"--potential_goal_threshold 0.8 {SHAPED}",
    ),
    axes=(f"root_env={','.join(TASKS)}", "seed=1-5"),
    flags=FLAGS,
    metric="success",
    left_out=LEFT_OUT,
    notes=(
        "As in the published code, the task's reward has the weight 10 where a potential is added.",
        "This weight alone (`none_10`) saves steps on PickUp. Compared with weight 1, potentials would seem to help.",
        "With the published coefficient of 1 the potential in code learns worse; PickUp has one such run.",
        "Fixed rules, not an LLM, gave the code, preferences and goals. They prefer new things nearby, of any colour.",
        "The coefficient 0.3 is the better of two, by one run each. The threshold of the goals was not searched.",
        "A potential costs more time than a step of the environment, so that all potentials are far slower.",
        "Other programs ran at the same time as `code` and `code_1`. The times leave out the making of potentials.",
    ),
)
