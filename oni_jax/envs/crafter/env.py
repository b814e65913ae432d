"""Crafter as a device environment."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import captions, display, goals, maps, pixels, prerequisites, things, view, world
from oni_jax.envs.crafter.draws import draws_of
from oni_jax.envs.crafter.levels import BK, ELLM, NUM_FRAMES, RGB_VIEW, TILE_VIEW, Variant, find_variant, spec_of
from oni_jax.envs.crafter.rules import EVENTS
from oni_jax.envs.crafter.state import State, begin
from oni_jax.envs.crafter.stock import load_stock
from oni_jax.envs.crafter.textures import load_textures
from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.device.wrapper import DeviceWrapper, FrameStack
from oni_jax.envs.display import Terminal
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec

_MAP_SHAPES = ((things.SIZE, things.SIZE), (maps.MAX_BORN,), (maps.MAX_BORN, 2))
_EXACT = 0  # maps in stock


class _Captions(NamedTuple):
    """A way to describe states."""

    key: Callable[[view.Seen], jax.Array]
    text: Callable[[np.ndarray], bytes]
    num_features: int = 0
    features: Callable[[view.Seen], jax.Array] = lambda seen: jnp.zeros(0, jnp.float32)
    read: Callable[[bytes], np.ndarray | None] = lambda caption: None


_CAPTIONS = {
    ELLM: _Captions(
        view.ellm_key,
        captions.ellm_caption,
        captions.NUM_ELLM_FEATURES,
        view.ellm_features,
        captions.read_ellm_caption,
    ),
    BK: _Captions(view.bk_key, captions.bk_caption),
}


@dataclasses.dataclass(frozen=True)
class Crafter(DeviceEnv[State]):
    """A variant of Crafter.

    Observations: `tiles` [9, 7] uint8, numbers of TILES by column and row; `status` [22] float32, from 0 to 1:
    inventory, the direction as one of four, whether asleep, and the light.

    Attributes:
      variant: its rules and its way of describing states.
      num_maps: size of the stock that maps are taken from; 0: each episode has a new map, made on the host.
    """

    variant: Variant
    num_maps: int

    @property
    def spec(self) -> EnvSpec:  # type: ignore
        return spec_of(self.variant, TILE_VIEW)

    @property
    def max_episode_steps(self) -> int | None:
        rules = self.variant.rules
        return rules.length - rules.spent_steps or None

    def reset(self, key: jax.Array) -> State:
        map_key, step_key = jax.random.split(key)
        state = begin(*self._map(jax.random.bits(map_key)))
        for i in range(self.variant.rules.spent_steps):
            state = world.step(self.variant.rules, state, jnp.int32(0), draws_of(jax.random.fold_in(step_key, i)))
        return state._replace(event=jnp.uint8(0))

    def _map(self, number: jax.Array) -> maps.Map:
        if self.num_maps != _EXACT:
            stock = load_stock(self.num_maps)
            return maps.Map(*(jnp.asarray(field)[number % self.num_maps] for field in stock))
        shapes = maps.Map(*(jax.ShapeDtypeStruct(shape, jnp.uint8) for shape in _MAP_SHAPES))
        return jax.pure_callback(lambda seed: maps.make_map(int(seed)), shapes, number, vmap_method="sequential")

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step[State]:
        rules = self.variant.rules
        before = state
        state = world.step(rules, state, action, draws_of(key))
        is_rewarded = np.isin(np.arange(len(things.ACHIEVEMENTS)), rules.rewarded)
        unlocked, had = (state.achievements > 0) & is_rewarded, before.achievements > 0
        gained = state.inventory[things.HEALTH] - state.paid_health
        reward = (unlocked & ~had).any() + rules.health_reward * gained
        dies = (state.inventory[things.HEALTH] <= 0) & rules.can_die
        done = (unlocked | ~is_rewarded).all() & rules.ends_when_done
        return Step(state, reward.astype(jnp.float32), dies, truncated=done)

    def observe(self, state: State) -> dict[str, jax.Array]:
        return {"tiles": view.tiles(state), "status": view.status(state)}

    def stats(self, state: State) -> jax.Array:
        unlocked = (state.achievements > 0).astype(jnp.float32)
        success = [unlocked[self.variant.rules.rewarded[0]][None]] if self.variant.rules.has_goal else []
        return jnp.concatenate([unlocked.sum()[None], unlocked, *success])

    def caption_key(self, state: State) -> jax.Array:
        return _CAPTIONS[self.variant.captions].key(view.look(state))

    def caption(self, key: np.ndarray) -> bytes:
        return _CAPTIONS[self.variant.captions].text(key)

    @property
    def num_caption_features(self) -> int:  # type: ignore
        return _CAPTIONS[self.variant.captions].num_features

    def caption_features(self, state: State) -> jax.Array:
        return _CAPTIONS[self.variant.captions].features(view.look(state))

    def read_caption(self, caption: bytes) -> np.ndarray | None:
        return _CAPTIONS[self.variant.captions].read(caption)

    def event_key(self, state: State) -> jax.Array:
        return state.event[None]

    def event(self, key: np.ndarray) -> bytes:
        return EVENTS[key[0]].encode()

    def scene(self, state: State) -> display.Scene:
        player = state.direction, state.is_sleeping, state.inventory, state.achievements, state.event
        return display.Scene(view.tiles(state), *player, self.caption_key(state))

    def draw(self, scene: display.Scene) -> Terminal:
        return display.draw(self, scene)

    same_goals = prerequisites.SAME
    attainable_goals = EVENTS[1:]

    def goals_reached(self, state: State, action: jax.Array, success: str) -> jax.Array:
        return goals.reached(self.variant.rules, state, action, success)

    def goals_possible(self, state: State) -> jax.Array:
        return goals.possible(self.spec.goals, view.look(state))


@dataclasses.dataclass(frozen=True)
class Pictures(DeviceWrapper):
    """Crafter, shown as a picture.

    Attributes:
      is_grey: it shows `grey` [84, 84, 1] uint8, ELLM's; else `rgb` [64, 64, 3] uint8.
      textures: see `load_textures`.
    """

    is_grey: bool
    textures: str

    @property
    def spec(self) -> EnvSpec:
        shown = {"grey": ArraySpec((pixels.GREY_SIDE, pixels.GREY_SIDE, 1), "uint8")} if self.is_grey else RGB_VIEW
        return self.env.spec._replace(observations=shown)

    def observe(self, state: State) -> dict[str, jax.Array]:
        picture = pixels.rgb(load_textures(self.textures), pixels.scene(state))
        return {"grey": pixels.grey(picture)} if self.is_grey else {"rgb": picture}


def find_crafter(env: DeviceEnv, state: Any) -> tuple[Crafter, State]:
    """Returns the innermost environment of one of `make_env`, and its state."""
    while isinstance(env, DeviceWrapper):
        env, state = env.env, env.inner(state)
    assert isinstance(env, Crafter)
    return env, state


def make_env(config: EnvConfig) -> DeviceEnv:
    """Makes one environment of a variant. Raises UserError: see `find_variant` and `load_textures`."""
    settings = config.crafter
    env = Crafter(find_variant(config), _EXACT if settings.maps == "exact" else settings.map_stock)
    if settings.view == "tiles":
        return env
    load_textures(settings.textures)  # raises if the textures are missing
    shown = Pictures(env, settings.view == "grey", settings.textures)
    return FrameStack(shown, "grey", NUM_FRAMES) if shown.is_grey else shown
