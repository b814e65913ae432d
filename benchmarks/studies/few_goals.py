"""Study of how many of a judge's goals it takes, how right and how soon, on Crafter without a reward of the world's."""

from benchmarks.studies import ellm, judged
from benchmarks.studies.base import Study
from oni_jax.runs.curves import UNLOCKED

STUDY = Study(
    name="few_goals",
    question="From how few answers, how wrong and how late, are suggested goals of use?",
    cases=judged.cases(
        f"{ellm.GOALS} llm",
        f"all_actions: {ellm.GOALS} all",
        caps=(30, 100, 300, 1000),
        wrong=(5, 10, 20, 30, 100),  # all: of other states
        late=(1, 10, 60),
    ),
    axes=("root_env=CrafterTextEnv-v1", "seed+judge_wrong_seed=1-5"),
    flags=(
        "--train_for_env_steps 2000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 "
        "--extrinsic_reward_coeff 0 --log_every_sec 1 --crafter_dying off --answers judge"
    ),
    metric=UNLOCKED,
    compared=("all_answers", "all_actions"),
    drawn=judged.DRAWN,
    also=("labels_held",),
    note=(
        "The goals are what fixed rules on the words of a caption suggest in an LLM's stead; the world pays "
        "nothing. All actions as goals, which ask nobody, unlock more than all answers do: 5.9 and 4.2 over the "
        "run, with a mark; 7.8 and 5.6 at the end, without. So this is no measure of what answers are worth, but "
        "of what is lost with fewer. At the end 30 answers give 0.55 of the gain of all, which were not counted, "
        "100 0.56, 300 0.63, 1,000 0.79; over the run 0.68, 0.72, 0.83, 0.91: perhaps the first achievements need "
        "few, and those that come late in a run more. The losses of 30 and 100 have marks over the run; of 1,000 "
        "no loss is shown. No loss is seen of wrong answers, each of which names what was right in an earlier "
        "state: not where all are wrong, which ends -0.2 [-1.3, 0.9] from all right ones. So what an answer says "
        "of its own state is not shown to count: a goal pays only when it is reached, and those of other states "
        "do as well. Answers ten seconds late cost 0.5 over the run, without a mark; at the end no loss is seen. "
        "A minute, which is half of a run, costs seven tenths of the gain at the end and nine tenths over the "
        "run, with marks: in two runs most goals come just before the end, in three never. The runs of "
        "`all_actions` and `wrong_100_percent` are of later commits. Other programs ran beside some runs, which "
        "took up to 2.7 times as long for it, so that seconds are fewer steps. Episodes go on without health "
        "(`--crafter_dying off`)."
    ),
)
