"""Study of a potential written as code on BabyAI-Text."""

from benchmarks.studies import babyai_rnd
from benchmarks.studies.base import Study

STUDY = Study(
    name="bk_code",
    question="Does shaping by a potential (BK-Code) save steps on tasks of BabyAI-Text that its author did not know?",
    cases=(
        "none: --llm_reward_type none",
        "rnd: --llm_reward_type rnd --llm_reward_coeff 0.01",
        "code: --llm_reward_type bk-code --reward_dir benchmarks/studies/judge_potential --llm_reward_coeff 0.3 "
        "--extrinsic_reward_coeff 10",
    ),
    axes=babyai_rnd.STUDY.axes,
    flags=babyai_rnd.STUDY.flags,
    metric="success",
    note=(
        "The code in `benchmarks/studies/judge_potential` is the rule-based judge's, not an LLM's: new things near are "
        "good, whatever they are. The runs of `none` and `rnd` are those of babyai_rnd. The coefficient was chosen "
        "from 0.3 and 1 by one run each."
    ),
)
