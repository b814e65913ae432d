"""Sums of rewards over episodes, in training and in evaluation."""

import numpy as np

INTRINSIC_RETURN = "intrinsic_return/"  # begins the names of statistics: the sum of a type's rewards


def episode_ends(records: np.ndarray) -> np.ndarray:
    """Returns [T, B] bool for records [T+1, B]: an episode ended with the step."""
    return records["terminated"][1:] | records["truncated"][1:]


def sum_rewards(
    sums: np.ndarray, rewards: np.ndarray, is_first: np.ndarray, ended: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Continues the sums of episodes over T steps.

    Args:
        sums: [K, B] float64, before the first step.
        rewards: [K, T, B].
        is_first: [T, B] bool; the step is an episode's first.
        ended: [T, B] bool; the episode ended with the step.

    Returns:
        The sums after the last step, and those [E, K] float32 of the episodes that ended, in order of time, then of B.
    """
    found = [np.zeros((0, len(sums)), np.float32)]
    for reward, first, end in zip(np.moveaxis(rewards, 1, 0), is_first, ended, strict=True):
        sums = np.where(first, 0.0, sums) + reward
        if end.any():
            found.append(sums.T[end].astype(np.float32))
    return sums, np.concatenate(found)
