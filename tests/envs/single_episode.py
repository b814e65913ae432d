"""One episode of an environment, step by step."""

import numpy as np

from oni_jax.envs.base import VectorEnv, make_step_output


class SingleEpisode:
    """One episode of a newly made `VectorEnv` with N = 1. Don't step it past its end.

    Attributes:
      ended: True once the episode has ended.
      terminated: ended by the environment's rules, rather than truncated.
      stats: its statistics, empty before the end.
    """

    def __init__(self, env: VectorEnv):
        self._env, self._out = env, make_step_output(env.spec, 1)
        self.ended, self.terminated, self.stats = False, False, dict[str, float]()

    def begin(self, earlier: bytes = b"") -> np.ndarray:
        """Starts, and replays the actions `earlier` of earlier episodes. Returns a record, which `act` overwrites."""
        self._env.reset(self._out)
        for action in earlier:
            self._env.step(np.array([action], np.int32), self._out)
        return self._out.records[0]

    def act(self, action: int) -> np.ndarray:
        """Takes a step. Returns the record of the observation after it, the final one at the end."""
        self._env.step(np.array([action], np.int32), self._out)
        record = self._out.records[0]
        if not (record["terminated"] or record["truncated"]):
            return record
        self.ended, self.terminated = True, bool(record["terminated"])
        self.stats = dict(zip(self._env.spec.episode_stats, self._out.episode_stats[0].tolist()))
        return self._out.finals[0]

    def caption(self) -> bytes:
        texts = self._out.texts
        return (texts.final_captions if self.ended else texts.captions)[0]
