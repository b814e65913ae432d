"""Study of how many of a judge's labels it takes, how right and how soon, on BabyAI-Text without the world's reward."""

from benchmarks.studies import babyai_rnd, judged
from benchmarks.studies.base import Study

STUDY = Study(
    name="few_labels",
    question="From how few labels, how wrong and how late, does a task of BabyAI-Text get learnt in part?",
    cases=judged.cases(
        "--llm_reward_type online_cls --llm_reward_coeff 0.1",
        caps=(30, 100, 300, 1000),
        wrong=(5, 10, 20, 30),
        late=(1, 10),
    ),
    axes=("root_env=BabyAI-Text-GoToLocal-RedBall-S20", "seed+judge_wrong_seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --encoder_custom mlp_encoder --hidden_size 128 "
        "--use_rnn False --learning_rate 1e-3 --extrinsic_reward_coeff 0 --log_every_sec 0.25"
    ),
    metric="success",
    left_out=babyai_rnd.STUDY.left_out,
    compared=("all_answers",),
    also=("labels_held",),
    note=(
        "The labels are those of fixed rules, not of an LLM: helpful is to stand near an object, whatever it is. The "
        "world pays nothing, so success comes of going to things. A judge on the same cores answers 100 prompts a "
        "second at most: `all` is some 3,500 labels, and ten seconds are a quarter of a run. Which answers are wrong "
        "differs from seed to seed. By success over the run, 1,000 labels do as well as all, 300 give over half of "
        "the gain, 100 a third, 30 nothing; with 5 to 20 % wrong two thirds to four fifths are left, with 30 % over "
        "half, and with 20 and 30 % it fades towards the end. Answers one second late delay learning by some two "
        "million steps, ten seconds late by three; that is more than those seconds, since they are also fewer: "
        "requests at once are bounded. The end is much the same. Other programs ran beside some of the runs."
    ),
)
