"""Study of judged captions on Catch: small enough to be run again on any machine."""

from benchmarks.studies.base import Contrast, Study

STUDY = Study(
    name="catch_judge",
    title="Labels on Catch",
    question="Do labels by fixed rules help to learn Catch?",
    answer="We found no difference: Catch is learnt within seconds without labels.",
    contrasts=(Contrast("judge", "none", beforehand=False),),
    shown={
        "none": "no labels",
        "judge": "labels by fixed rules",
    },
    cases=("none: --llm_reward_type none", "judge: --llm_reward_type online_cls --llm_reward_coeff 0.1"),
    axes=("seed=1-5",),
    flags=(
        "--root_env Catch-v0 --train_for_env_steps 120000 --actor_pool serial --num_envs_per_worker 32 "
        "--worker_num_splits 1 --batch_size 512 --rollout 16 --recurrence 16 --encoder_custom mlp_encoder "
        "--hidden_size 64 --learning_rate 2e-3 --gamma 0.95 --log_every_sec 0.05 --save_every_sec 0"
    ),
    notes=(
        "The best return is 1.",
        "The study is here because any machine repeats it in a minute.",
    ),
)
