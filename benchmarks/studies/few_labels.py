"""Study of how many of a judge's labels it takes, how right and how soon, on BabyAI-Text without the world's reward."""

from benchmarks.studies import bk, judged
from benchmarks.studies.base import Contrast, Study

STUDY = Study(
    name="few_labels",
    title="Labels on BabyAI-Text, without its reward",
    question="How few labels by fixed rules are enough on BabyAI-Text, and how wrong or late may they be?",
    answer="Labels teach far more than paying every caption alike; we found no loss with 300 labels or a delay of ten "
    "seconds, and no gain with half of the labels wrong.",
    contrasts=(Contrast("all_answers", "count", beforehand=False),),
    shown={
        "all_answers": "all labels, some 4,500",
        "at_most_300": "at most 300 labels",
        "at_most_30": "at most 30 labels",
        "wrong_50_percent": "half of the labels wrong",
        "count": "every caption pays alike",
        "no_reward": "no reward",
    },
    cases=judged.cases(
        "--llm_reward_type online_cls --llm_reward_coeff 0.1",
        judged.COUNT,
        caps=(30, 100, 300, 1000),
        wrong=(5, 10, 20, 30, 50),  # half: by chance
        late=(1, 10, 60),
    ),
    axes=(f"root_env={bk.TASKS[0]}", "seed+judge_wrong_seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --encoder_custom mlp_encoder --hidden_size 128 "
        "--use_rnn False --learning_rate 1e-3 --extrinsic_reward_coeff 0 --log_every_sec 0.25"
    ),
    metric="success",
    left_out=bk.LEFT_OUT,
    also=("labels_held",),
    notes=(
        "Fixed rules, not an LLM, gave the labels. They call it helpful to stand near an object of any kind.",
        "The world pays nothing; with its reward the same network reaches 0.96.",
        "`count` pays every caption, less each time that it is seen in an episode. It reaches 50 %, and loses this "
        "again.",
        "The judge answers 100 questions a second at most, so that slower runs get more labels.",
        "Until a first answer arrives, only two questions are in flight. So late answers come twice as late, and with "
        "a delay of a minute none arrives before the end.",
    ),
)
