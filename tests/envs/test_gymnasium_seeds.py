"""Environments of gymnasium that ignore the seed of a reset are named, and seeded by gym's former method."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from launch import train
from oni_jax.envs import registry
from oni_jax.envs.base import VectorEnv, make_step_output
from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.settings.worlds import EnvConfig

IGNORED = "resets with one seed differ"
FORMER = "its seed() is called before each reset"


class Seeded(gymnasium.Env):
    """Numbers drawn from the generator that the reset seeds, in an array that is used again."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 1, (4,), np.float32)

    def __init__(self) -> None:
        self.shown = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.shown[:] = self.generator().random(4)
        return self.shown, {}

    def generator(self) -> np.random.Generator:
        return self.np_random

    def step(self, action: int):
        self.shown[:] = self.generator().random(4)
        return self.shown, 0.0, bool(action), False, {}


class Constant(Seeded):
    """Starts that are all the same, and steps that no seed decides."""

    def reset(self, **how: Any):
        self.shown[:] = np.nan
        return self.shown, {}


class Ignoring(Seeded):
    """A generator that the reset leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.other = np.random.default_rng()

    def generator(self) -> np.random.Generator:
        return self.other


class Counting(gymnasium.Env):
    """Starts that differ by one number, of which each second is the same."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({"number": spaces.Discrete(3), "text": spaces.Box(0, 1, (1,), np.int64)})
    resets = 0

    def reset(self, **how: Any):
        self.resets += 1
        return {"number": self.resets // 2 % 2, "text": np.zeros(1, np.int64)}, {}


class Former(Ignoring):
    """The same with the method that gym had."""

    def seed(self, seed: int | None = None) -> None:
        self.other = np.random.default_rng(seed)


class OfTwo(Ignoring):
    """The same with NLE's form of it."""

    def seed(self, core: int | None = None, disp: int | None = None, reseed: bool = True) -> None:
        self.other = np.random.default_rng(None if None in (core, disp) else [core, disp])  # type: ignore


class Useless(Ignoring):
    def seed(self, seed: int | None = None) -> None:
        raise NotImplementedError


class WithoutEffect(Ignoring):
    def seed(self, seed: int | None = None) -> None:
        pass


def nethack() -> gymnasium.Env:
    import nle  # noqa: F401  # it registers its tasks

    return gymnasium.make("NetHackScore-v0", observation_keys=("chars", "blstats"))


def make(kind: Any, seed: int) -> VectorEnv:
    environment, config = gymnasium_environment("Own-v0", kind), EnvConfig(root_env="Own-v0")
    return environment.make(config, environment.make_spec(config), 2, seed, 0)


def play(kind: Any, seed: int) -> np.ndarray:
    env = make(kind, seed)
    out = make_step_output(env.spec, 2)
    env.reset(out)
    seen = [out.records.copy()]
    for action in (0, 0, 1, 0):
        env.step(np.full(2, action, np.int32), out)
        seen.append(out.records.copy())
    env.close()
    return np.stack(seen)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Seeded, ""),
        (lambda: gymnasium.make("FrozenLake-v1"), ""),
        (Constant, ""),
        (Ignoring, IGNORED),
        (Counting, IGNORED),
        (Useless, IGNORED),
        (WithoutEffect, IGNORED),
        (Former, FORMER),
        (lambda: gymnasium.Wrapper(OfTwo()), FORMER),
        (nethack, FORMER),
    ],
)
def test_environment_that_ignores_its_seed_is_named(kind, told):
    note = make(kind, 0).note()
    assert note.startswith("warning: Own-v0 ignores reset(seed=...)") if told else not note
    assert told in note and "\n" not in note and len(note) < 200


@pytest.mark.parametrize("kind", [Seeded, Former, OfTwo, nethack])
def test_equal_seeds_play_equal_games(kind):
    first, again, other = play(kind, 3), play(kind, 3), play(kind, 4)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_warning_is_printed_once_in_a_run(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(registry, "ENVIRONMENTS", [*registry.ENVIRONMENTS, gymnasium_environment("Ours-v0", Ignoring)])
    words = (
        f"--root_env=Ours-v0 --train_dir={tmp_path} --experiment=run --llm_reward_type=none "
        "--encoder_custom=mlp_encoder --hidden_size=8 --use_rnn=False --actor_pool=serial "
        "--num_workers=2 --num_envs_per_worker=2 --rollout=8 "
        "--recurrence=8 --batch_size=32 --train_for_env_steps=128"
    )
    assert train.main(words.split()) == 0
    assert capfd.readouterr().out.count("warning: Ours-v0 ignores reset(seed=...)") == 1
