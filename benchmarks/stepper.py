"""Our environment, stepped with random actions by C or by Python, on either engine."""

from typing import NamedTuple

import numpy as np

from benchmarks.harness import ROOT_ENV
from oni_jax.envs.base import make_step_output
from oni_jax.envs.nethack.native.vector_env import WHEEL
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import NetHackVectorEnv, episode_seeds
from oni_jax.settings.worlds import NetHackConfig

TASK = TASKS[ROOT_ENV]
SEEDS = episode_seeds(0)


class Workload(NamedTuple):
    """Games and steps of one process."""

    first_index: int
    num_games: int
    num_warm_up_steps: int
    num_steps: int

    def actions(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws actions [W, num_games] int32 of the warm-up, and [S, num_games] of the timed steps."""
        shape = self.num_warm_up_steps + self.num_steps, self.num_games
        actions = np.random.default_rng(self.first_index).integers(len(TASK.keys), size=shape, dtype=np.int32)
        return actions[: self.num_warm_up_steps], actions[self.num_warm_up_steps :]


class Stepper:
    """Our environment and its output arrays."""

    def __init__(
        self,
        workload: Workload,
        view: str,
        share_code: bool,
        make: type[NetHackVectorEnv] = NetHackVectorEnv,
        engine: str = WHEEL,
    ):
        num_games, first_index = workload.num_games, workload.first_index
        settings = NetHackConfig(view, share_code, engine=engine)
        self._env = make(TASK, num_games, SEEDS, first_index, settings=settings)
        self._out = make_step_output(self._env.spec, num_games)
        self._env.reset(self._out)

    def run(self, actions: np.ndarray) -> None:
        """Steps all games with actions [S, num_games]."""
        for row in actions:
            self._env.step(row, self._out)

    def shown(self) -> bytes:
        """Returns all observations after the last step."""
        return b"".join(self._out.records[name].tobytes() for name in self._env.spec.observations)

    def close(self) -> None:
        self._env.close()
