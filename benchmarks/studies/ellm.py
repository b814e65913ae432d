"""Study of ELLM's suggested goals and of curiosity on Crafter, without a reward of the world's."""

from benchmarks.studies.base import Study
from oni_jax.runs.curves import UNLOCKED

GOALS = "--llm_reward_type ellm --llm_reward_coeff 1 --goal_conditioned --goal_suggester"

STUDY = Study(
    name="ellm",
    question="Without any reward of the world's, which goals or which curiosity unlock Crafter's achievements?",
    cases=(
        "no_reward: --llm_reward_type none",
        f"oracle: {GOALS} oracle",
        f"judge: {GOALS} llm --answers judge",
        f"all_actions: {GOALS} all",
        f"novelty: {GOALS} all --goal_success tried",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.1",
        "noveld: --llm_reward_type noveld --llm_reward_coeff 0.1",
        "apt: --llm_reward_type apt --llm_reward_coeff 0.1",
        f"answers: {GOALS} llm --answers recorded",
        f"model: {GOALS} model --answers recorded --reward_model_lr 1e-2 --reward_model_batch_size 512",
    ),
    axes=("root_env=CrafterTextEnv-v1", "seed=1-5"),
    flags=(
        "--train_for_env_steps 5000000 --batch_size 8192 --rollout 32 --ppo_epochs 3 --num_minibatches 4 "
        "--encoder_custom generic_encoder --hidden_size 128 --use_rnn False --learning_rate 5e-4 "
        "--extrinsic_reward_coeff 0 --log_every_sec 1 --crafter_dying off"
    ),
    compared=("judge", "all_actions: oracle answers model", "oracle: model", "answers: model"),
    metric=UNLOCKED,
    note=(
        "The goals of `oracle` are those whose prerequisites the state meets; of `judge`, what fixed rules on the "
        "words of a caption suggest in an LLM's stead, asked in the background; of `all_actions`, the names of "
        "all 139 actions, moves among them. `novelty` is the published baseline of that name: the same goals, "
        "reached by naming them, whether the action had an effect or not. Their policies see which goals are "
        "open; the other policies see none. The goals of `answers` and `model` are a language model's: its "
        "recorded answers, looked up by the state's caption, and a network that learns from them while the policy "
        "trains, whose goals are open at first sight. The main contrast, named beforehand, is `model` with "
        "`all_actions`: +1.6 [0.8, 2.4] at the end and +0.45 [0.25, 0.65] over the run, with marks. `model` ends "
        "2.9 [2.4, 3.4] above the same answers without it, with a mark; from `oracle` it does not differ (-0.2 "
        "[-1.0, 0.5]). `answers` and `judge` do not differ, though 96 % of the steps of `answers` have one: the "
        "rest are states met for the first time, and rare ones. Ten earlier runs of `model`, of other sizes and "
        "numbers of gradient steps, whose network suggested goals at random before it had learnt, had 11.5 and "
        "11.3 in their last episodes, these 11.7; they were not kept. With all actions as goals, without an LLM, "
        "more is unlocked than with those that the judge suggests, with a mark over the run and none at the end. "
        "Why is not known. The goals of `oracle` end above all actions, by 1.8 [0.9, 2.7], with a mark; over the "
        "run no difference is shown. Of curiosity RND unlocks 0.52 [0.23, 0.82] more than no reward over the run, "
        "without a mark; at the end no difference is found. Other programs shared the cores with three of the "
        "runs of `oracle`, which took 9 to 14 minutes, where the other two took five. The coefficients of the "
        "three kinds of curiosity were not searched. Episodes go on without health, which is an option of the "
        "published config (`--crafter_dying off`)."
    ),
)
