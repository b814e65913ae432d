"""Crafter's pictures: what they show, by night, asleep and stacked; the published renderer's are in tests/golden."""

from typing import Any

import crafter
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.crafter import pixels, textures, things
from oni_jax.envs.crafter.balance import DAY, daylight
from oni_jax.envs.crafter.levels import TILES
from oni_jax.envs.registry import make_vector_env
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from tests.envs.single_episode import SingleEpisode

NUM_STEPS = 6
SCENE = pixels.Scene(
    tiles=np.full(things.VIEW, things.GRASS),
    materials=np.full(things.VIEW, things.GRASS),
    direction=np.int32(0),
    is_sleeping=np.bool_(False),
    inventory=np.zeros(len(things.ITEMS), np.int32),
    light=np.float32(1),
    noise=np.uint32(0),
)


def drawn(**changes) -> np.ndarray:
    return np.asarray(_drawn(SCENE._replace(**changes)))


_drawn = jax.jit(lambda scene: pixels.rgb(textures.load_textures("plain"), scene))


def episode(view: str) -> list[np.ndarray]:
    config = EnvConfig(root_env="Crafter-v1", crafter=CrafterConfig(view=view, map_stock=16))
    played = SingleEpisode(make_vector_env(config, 1, 3, 0))
    name = {"rgb": "rgb", "grey": "grey"}[view]
    return [played.begin()[name].copy(), *(played.act(1 + i % 4)[name].copy() for i in range(NUM_STEPS))]


def test_each_thing_looks_different():
    pictures = [
        drawn(tiles=np.full(things.VIEW, i), materials=np.full(things.VIEW, min(i, 12))) for i in range(len(TILES))
    ]
    pictures += [drawn(tiles=np.full(things.VIEW, things.PLAYER), direction=np.int32(i)) for i in range(1, 4)]
    pictures += [drawn(tiles=np.full(things.VIEW, things.PLAYER), is_sleeping=np.bool_(True))]
    owned = np.eye(len(things.ITEMS), dtype=np.int32)
    pictures += [drawn(inventory=amount * one) for one in owned for amount in (1, 2, 9)]
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)


def test_a_cell_is_drawn_where_it_is():
    tiles = SCENE.tiles.copy()
    tiles[8, 0] = things.TREE  # right column, top row
    rows, columns, _ = np.nonzero(drawn(tiles=tiles, materials=tiles) != drawn())
    assert rows.min() >= 0 and rows.max() < 7 and columns.min() >= 56 and columns.max() < 63


def test_nights_are_dark_and_noisy():
    day, night = drawn()[:49, :63], drawn(light=np.float32(0))[:49, :63]
    other = drawn(light=np.float32(0), noise=np.uint32(1))[:49, :63]
    assert np.any(night != other) and np.abs(night.astype(float).mean() - other.astype(float).mean()) < 2
    middle = (slice(22, 27), slice(29, 34))  # the night leaves it clear
    assert np.array_equal(night[middle], other[middle]) or np.abs(night[middle].astype(int) - other[middle]).max() <= 4
    assert np.all(drawn(light=np.float32(0.6), noise=np.uint32(1)) == drawn(light=np.float32(0.6)))
    assert not np.array_equal(day, night)
    asleep = drawn(is_sleeping=np.bool_(True))[:49, :63]
    assert np.all(asleep[..., 0] == asleep[..., 1])  # grey


@pytest.mark.slow
def test_frames_are_stacked_the_oldest_first():
    grey, pictures = episode("grey"), episode("rgb")
    assert grey[0].shape == (84, 84, 4) and pictures[0].shape == (64, 64, 3)
    single = np.asarray(jax.vmap(pixels.grey)(jnp.asarray(pictures)))[..., 0]
    for step, frames in enumerate(grey):
        for i in range(4):
            assert np.array_equal(frames[..., i], single[max(0, step - 3 + i)])


def test_noise_at_night_is_distributed_as_the_published():
    """Its mean and deviation over a picture of grass, at midnight."""
    env: Any = crafter.Env(seed=0)
    env.reset()
    env._world._mat_map[:] = things.GRASS
    for thing in [thing for thing in env._world.objects if thing is not env._player]:
        env._world.remove(thing)
    env._step = int(np.argmin(daylight(np.arange(DAY))))
    env._update_time()
    env._world.random = np.random.RandomState(0)
    published = np.array([env.render() for _ in range(20)])[:, :49, :63].astype(float)
    scene = SCENE._replace(tiles=SCENE.tiles.copy(), light=np.float32(env._world.daylight), direction=np.int32(3))
    scene.tiles[4, 3] = things.PLAYER
    draw = jax.jit(lambda noise: pixels.rgb(textures.load_textures("published"), scene._replace(noise=noise)))
    rendered = np.array([draw(np.uint32(i * 7919 + 1)) for i in range(20)])[:, :49, :63].astype(float)
    np.testing.assert_allclose(rendered.mean(0), published.mean(0), atol=25)
    np.testing.assert_allclose(rendered.mean(), published.mean(), atol=0.3)
    np.testing.assert_allclose(rendered.std(0).mean(), published.std(0).mean(), rtol=0.03)


def test_published_textures_that_are_not_there(monkeypatch):
    monkeypatch.setattr(textures.importlib.util, "find_spec", lambda name: None)
    textures.load_textures.cache_clear()
    config = EnvConfig(
        root_env="Crafter-v1",
        crafter=CrafterConfig(view="rgb", textures="published", map_stock=4),
    )
    with pytest.raises(UserError, match="pip install 'crafter<2'"):
        make_vector_env(config, 1, 0, 0)
    textures.load_textures.cache_clear()
