"""Study of how many of a judge's labels it takes, how right and how soon, on BabyAI-Text without the world's reward."""

from benchmarks.studies import babyai_rnd, judged
from benchmarks.studies.base import Study

STUDY = Study(
    name="few_labels",
    question="From how few labels, how wrong and how late, does a task of BabyAI-Text get learnt in part?",
    cases=judged.cases(
        "--llm_reward_type online_cls --llm_reward_coeff 0.1",
        judged.COUNT,
        caps=(30, 100, 300, 1000),
        wrong=(5, 10, 20, 30, 50),  # half: by chance
        late=(1, 10, 60),
    ),
    axes=("root_env=BabyAI-Text-GoToLocal-RedBall-S20", "seed+judge_wrong_seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --encoder_custom mlp_encoder --hidden_size 128 "
        "--use_rnn False --learning_rate 1e-3 --extrinsic_reward_coeff 0 --log_every_sec 0.25"
    ),
    metric="success",
    left_out=babyai_rnd.STUDY.left_out,
    compared=("all_answers", "count"),
    drawn=judged.DRAWN,
    also=("labels_held",),
    note=(
        "The labels are those of fixed rules, not of an LLM: helpful is to stand near an object, whatever it is. "
        "The world pays nothing, so success comes of going to things; with the world's reward the same network "
        "reaches 0.96 (babyai_rnd). The control `count` pays every caption, less for each time that it is seen in "
        "an episode, and asks nobody: four of its five runs get to 50 %, and all lose it again, so that all "
        "labels end 0.36 [0.20, 0.52] above it, and 0.24 [0.14, 0.34] over the run, without marks. A judge is "
        "asked at most 100 prompts a second, so that slower runs get more labels: `all_answers` is 4,500 of them, "
        "whose gain over no reward has no mark either. With 1,000 no loss is shown; nor with 300, where half of "
        "the gain over the run is left; with 100 three tenths are, which is not shown to be any, and with 30 "
        "nothing. No loss is seen of 5 and 10 % wrong answers; with 20 and 30 % half to two thirds of the gain "
        "are left at the end, seven tenths over the run, though no loss is shown either; they had a quarter fewer "
        "labels than those. With half of them wrong, which is chance, no gain over no reward is seen at the end: "
        "0.30 [0.14, 0.46] below all answers, and 0.15 [0.05, 0.25] over the run, without marks. So the answers "
        "matter. But for what is kept rather than for what is reached: the best five points in a row of `count` "
        "are no lower than those of all labels. Which are wrong differs from seed to seed. Nor is a loss seen of "
        "a second's delay. Ten seconds, a quarter of a run, cost six tenths of the gain over the run, without a "
        "mark; at the end no loss is seen. A minute is longer than these runs: they end before the first answer."
    ),
)
