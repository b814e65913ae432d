"""Study of how many of a judge's goals it takes, how right and how soon, on Crafter without a reward of the world's."""

from benchmarks.studies import judged
from benchmarks.studies.base import Study
from oni_jax.reporting.curves import UNLOCKED

STUDY = Study(
    name="few_goals",
    question="From how few answers, how wrong and how late, are suggested goals of use?",
    cases=judged.cases(
        "--llm_reward_type ellm --llm_reward_coeff 1 --goal_conditioned --goal_suggester llm",
        caps=(30, 100, 300, 1000),
        wrong=(5, 10, 20, 30),
        late=(1, 10, 60),
    ),
    axes=("root_env=CrafterTextEnv-v1", "seed+judge_wrong_seed=1-5"),
    flags=(
        "--train_for_env_steps 2000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 "
        "--extrinsic_reward_coeff 0 --log_every_sec 1"
    ),
    metric=UNLOCKED,
    also=("labels_held",),
    note=(
        "The goals are what fixed rules on the words of a caption suggest in an LLM's stead; the world pays nothing. "
        "`all` is 4,000 to 12,000 answers. Of its gain 30 answers give half, 1,000 four fifths: the first achievements "
        "need few, those that come late in a run need more. Wrong answers, 30 % of them too, cost nothing that can be "
        "seen here: a wrong one names what was right in another state, and a goal pays only when it is reached. Those "
        "that come ten seconds late delay the beginning alone. A minute is half of a run: two to 514 answers come in "
        "time. Other programs ran beside most of the runs, which are up to twice as long for it; not beside the late "
        "ones."
    ),
)
