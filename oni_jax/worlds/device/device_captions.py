"""Captions of a rollout on an accelerator: texts and episodic counts, made on the host from codes."""

from typing import NamedTuple

import numpy as np

from oni_jax.envs.captions import EpisodicCounts
from oni_jax.envs.device.base import DeviceEnv
from oni_jax.envs.device.shown import TextTable
from oni_jax.ops.captions import a_step_of_each, unique_in_order
from oni_jax.types import CaptionBatch


class Counted(NamedTuple):
    """Episodic counts of captions, see `Trajectory`; [T, N] float32."""

    before: np.ndarray
    caused: np.ndarray


class CodeCounts(EpisodicCounts):
    """Counts each environment's captions, by their codes, within its running episode."""

    def count(self, codes: np.ndarray, final_codes: np.ndarray, ended: np.ndarray) -> Counted:
        """Counts a rollout.

        Args:
            codes: [T+1, N] uint64, of the observations; the first ones were counted with the last rollout.
            final_codes: [T, N] uint64, of the states that the actions led to; others than the next observations' where
                an episode ended, or goes on with another goal.
            ended: [T, N] bool.
        """
        before, caused = np.empty(codes.shape, np.float32), np.empty(ended.shape, np.float32)
        for i, counts in enumerate(self.of_each):
            column, finals, ends = codes[:, i].tolist(), final_codes[:, i].tolist(), ended[:, i].tolist()
            first = column[0]
            numbers = [counts.setdefault(first, 1)]
            outcomes = []
            for code, final, end in zip(column[1:], finals, ends):
                number = counts.get(final, 0) + 1
                outcomes.append(number)
                if end:
                    counts.clear()
                    number = 1
                elif code != final:
                    counts[final], number = number, counts.get(code, 0) + 1
                counts[code] = number
                numbers.append(number)
            before[:, i], caused[:, i] = numbers, outcomes
        return Counted(before[:-1], caused)


class TextReader:
    """Makes texts of a rollout's codes."""

    def __init__(self, env: DeviceEnv):
        self._table = TextTable(env.caption)

    @property
    def num_captions(self) -> int:
        """Captions made so far."""
        return self._table.num_made

    def captions(self, codes: np.ndarray, keys: np.ndarray) -> CaptionBatch:
        """Returns the captions of codes [T, N] uint64 with keys [T, N, M] uint8."""
        unique, index = unique_in_order(codes)
        steps = a_step_of_each(index, len(unique))
        return CaptionBatch(self._table.look_up(unique, keys.reshape(codes.size, -1)[steps]), index)
