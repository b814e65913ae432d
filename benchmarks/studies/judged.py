"""Cases of studies that ask how few answers of the judge's rules are enough, how right and how soon."""

from collections.abc import Sequence

COUNT = "count: --llm_reward_type count --llm_reward_coeff 0.1"  # a control without answers


def cases(flags: str, control: str, caps: Sequence[int], wrong: Sequence[int], late: Sequence[int]) -> tuple[str, ...]:
    """Returns the cases: no reward, a control, all answers, and fewer, worse and later ones.

    Args:
        flags: of launch.train, for the judge's reward.
        control: a case that is rewarded in the same way, without answers.
        caps: at most so many answers.
        wrong: so many percent of them wrong.
        late: so many seconds until each.
    """
    return (
        "no_reward: --llm_reward_type none",
        control,
        f"all_answers: {flags}",
        *(f"at_most_{cap}: {flags} --llm_max_labels {cap}" for cap in caps),
        *(f"wrong_{percent}_percent: {flags} --judge_wrong_fraction {percent / 100:g}" for percent in wrong),
        *(f"late_{secs}_s: {flags} --judge_latency_secs {secs}" for secs in late),
    )
