"""Study of settings for NetHack on two cores: what network, learning rate and batch learn most in a few minutes."""

from benchmarks.studies.base import Study

EMBEDDED = "--encoder_custom nle_embedded_encoder"

STUDY = Study(
    name="small_search",
    question="What learns NetHack best on two cores: which size of network, learning rate and batch?",
    cases=(
        f"h128: {EMBEDDED} --hidden_size 128",
        f"h128_lr_3e-4: {EMBEDDED} --hidden_size 128 --learning_rate 3e-4",
        f"h128_lr_1e-3: {EMBEDDED} --hidden_size 128 --learning_rate 1e-3",
        f"h256_lr_3e-4: {EMBEDDED} --hidden_size 256 --learning_rate 3e-4",
        f"h128_lr_3e-4_no_rnn: {EMBEDDED} --hidden_size 128 --learning_rate 3e-4 --use_rnn False",
        f"h128_lr_3e-4_two_epochs: {EMBEDDED} --hidden_size 128 --learning_rate 3e-4 --ppo_epochs 2 "
        "--num_minibatches 2",
        f"h128_lr_3e-4_batch_4096: {EMBEDDED} --hidden_size 128 --learning_rate 3e-4 --num_envs_per_worker 64 "
        "--batch_size 4096",
        f"h128_lr_1e-3_batch_4096: {EMBEDDED} --hidden_size 128 --learning_rate 1e-3 --num_envs_per_worker 64 "
        "--batch_size 4096",
        "published_network: --encoder_custom nle_rgbcrop_encoder",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-2"),
    left_out=2 * 20 * 5000,  # environments, and the limit of an episode
    note=(
        "Two seeds of each, which don't say which is best: a run's return goes up and down by more than most of "
        "these differ. Both runs of the published network end above all others but one, and took 1.05 and 4.9 "
        "times as long as `h128`; what is learnt in equal time is `small_minutes`' question. The two seeds ran "
        "on two machines, with other programs beside the first six of the first seed and beside the second of "
        "`published_network`: times say little. With 64 games a process only short episodes have ended until "
        "640,000 steps: the means of these two over the run are too low."
    ),
    flags="--llm_reward_type none --num_workers 2 --train_for_env_steps 1000000 --log_every_sec 2",
)
