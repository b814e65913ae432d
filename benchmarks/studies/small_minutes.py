"""Study of networks for NetHack on two cores by equal time."""

from benchmarks.studies.base import Contrast, Study

STUDY = Study(
    name="small_minutes",
    title="Networks for NetHack on two cores",
    question="Which network learns NetHack best in ten minutes on two cores?",
    answer="We found no difference between the published network and a smaller one with larger batches; the smallest "
    "one ends lowest.",
    contrasts=(Contrast("impala_h128_lr_3e-4_batch_4096", "published_network", beforehand=False),),
    shown={
        "published_network": "the published network",
        "impala_h128_lr_3e-4_batch_4096": "a smaller one, with more games and larger batches",
        "impala_h128": "the smaller one alone",
        "embedded_h128": "the smallest one",
    },
    cases=(
        "published_network: --encoder_custom nle_rgbcrop_encoder",
        "impala_h128: --encoder_subtype convnet_impala --hidden_size 128",
        "embedded_h128: --encoder_custom nle_embedded_encoder --hidden_size 128",
        "impala_h128_lr_3e-4_batch_4096: --encoder_subtype convnet_impala --hidden_size 128 --learning_rate 3e-4 "
        "--num_envs_per_worker 64 --batch_size 4096",
    ),
    axes=("root_env=NetHackScoreExtendedActions-v1", "seed=1-5"),
    flags="--llm_reward_type none --num_workers 2 --train_for_seconds 600 --log_every_sec 2",
    left_out=120,  # seconds
    jobs=1,
    notes=(
        "The smaller network is the published one with `--encoder_subtype convnet_impala --hidden_size 128`; the "
        "smallest is `nle_embedded_encoder`.",
        "`impala_h128_lr_3e-4_batch_4096` was added when the others had been measured.",
        "The published network with such batches was not tried, nor the smaller one with some of the changes.",
    ),
)
