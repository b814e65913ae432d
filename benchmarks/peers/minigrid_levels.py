"""BabyAI-Text's levels on PyPI's `minigrid`, whose worlds they are; without captions. Needs `minigrid` when called."""

import contextlib
import io
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from oni_jax.envs.babyai.cells import COLOURS, TYPES
from oni_jax.envs.babyai.levels import Action, Family, Level


def make_env(level: Level) -> Any:
    """Returns an environment of `minigrid` that draws this level; it sets its step limit at a reset."""
    from minigrid.envs.babyai.core.levelgen import LevelGen
    from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
    from minigrid.envs.babyai.core.verifier import (
        AfterInstr,
        BeforeInstr,
        GoToInstr,
        ObjDesc,
        PickupInstr,
    )

    def draw_target(env: Any, cells: tuple[int, ...]) -> tuple[str, str]:
        cell = cells[env._rand_int(0, len(cells))]
        return TYPES[cell & 7], COLOURS[cell >> 3]

    class GoToLocal(RoomGridLevel):
        def gen_mission(self) -> None:
            self.place_agent()
            target = draw_target(self, level.targets[0])
            self.add_object(0, 0, *target)
            self.add_distractors(num_distractors=level.num_distractors, all_unique=False)
            self.check_objs_reachable()
            self.instrs = GoToInstr(ObjDesc(*target))

    class GoToOrPickUp(LevelGen):
        def gen_mission(self) -> None:
            targets = [draw_target(self, cells) for cells in level.targets]
            for target in targets:
                self.add_object(0, 0, *target)
            self.add_distractors(num_distractors=level.num_distractors, all_unique=False)
            self.place_agent()
            self.check_objs_reachable()
            if level.family is Family.PICK_UP:
                self.instrs = PickupInstr(ObjDesc(*targets[0]))
            else:
                first, second = (GoToInstr(ObjDesc(*target)) for target in targets)
                is_before = self._rand_bool()
                self.instrs = BeforeInstr(first, second) if is_before else AfterInstr(second, first)

    env_class = GoToLocal if level.family is Family.GO_TO_LOCAL else GoToOrPickUp

    env: Any = env_class(room_size=level.size, num_rows=1, num_cols=1)
    reset = env.reset

    def reset_silently(**options: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints each rejected level
            return reset(**options)

    env.reset = reset_silently
    return env


def make_image_env(level: Level) -> Any:
    """Returns the environment with its image alone as the observation, as a policy reads it."""
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(make_env(level))


class Played(NamedTuple):
    """Record of whole episodes."""

    num_steps: int
    returns: list[float]


def play(level: Level, seed: int, num_episodes: int) -> Generator[None, None, Played]:
    """Plays episodes with random actions, one environment, no vector around it: see `harness.run_together`."""
    env, rng = make_env(level), np.random.default_rng(seed)
    env.reset(seed=seed)
    play_episode(env, rng)
    yield
    played = [play_episode(env, rng) for _ in range(num_episodes)]
    yield
    return Played(sum(num_steps for num_steps, _ in played), [total for _, total in played])


def play_episode(env: Any, rng: np.random.Generator) -> tuple[int, float]:
    """Plays an episode, its reset included. Returns its length and return."""
    env.reset()
    total_reward, num_steps, ended = 0.0, 0, False
    actions = rng.integers(len(Action), size=env.max_steps).tolist()
    while not ended:
        _, reward, terminated, truncated, _ = env.step(actions[num_steps])
        total_reward, num_steps, ended = total_reward + float(reward), num_steps + 1, terminated or truncated
    return num_steps, total_reward
