"""Goals suggested for each state of a device environment, and what reaching them pays; see `envs.goals`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.device.base import DeviceEnv, Step
from oni_jax.envs.device.wrapper import DeviceWrapper
from oni_jax.envs.goals import TASK, goal_spec
from oni_jax.settings.worlds import GoalConfig
from oni_jax.types import GOAL_REWARD, OPEN_GOALS, EnvSpec

SUGGESTED = 0.0  # log-odds above which a goal is open: probabilities above one half
_SUGGESTING = 0x60A1  # folded into the key of a step


class GoalTable(NamedTuple):
    """Goals suggested for captions: a hash table of K rows, a power of 2, two of which may hold a code: `rows_of`."""

    codes: jax.Array  # [K, 2] uint32, see `DeviceEnv.caption_code`; all bits are set in rows without one
    worths: jax.Array  # [K, G + 1] float32 or uint8; what reaching each is worth; last, how many words name none


class HostTable:
    """Goals suggested for captions, which the host looks up: for environments that are stepped on its CPU.

    Args:
        worths: question -> [G + 1] float32 as in `GoalTable`.
        asked_as: the question about a caption.
    """

    def __init__(self, worths: Mapping[bytes, np.ndarray], asked_as: Callable[[bytes], bytes]):
        self._worths, self._asked_as = worths, asked_as

    def look_up(self, env: DeviceEnv, state: Any, otherwise: jax.Array | float) -> jax.Array:
        """Returns the row [G + 1] of a state's caption; `otherwise` where it has none."""
        size = len(env.spec.goals) + 1

        def read(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            rows = np.asarray(keys)
            items = [self._asked_as(env.caption(key)) for key in rows.reshape(-1, rows.shape[-1])]
            found = [self._worths.get(item) for item in items]
            worths = np.array([np.zeros(size) if row is None else row for row in found], np.float32)
            is_known = np.array([row is not None for row in found])
            return worths.reshape(*rows.shape[:-1], size), is_known.reshape(rows.shape[:-1])

        shapes = jax.ShapeDtypeStruct((size,), np.float32), jax.ShapeDtypeStruct((), bool)
        worths, is_known = jax.pure_callback(read, shapes, env.caption_key(state), vmap_method="expand_dims")
        return jnp.where(is_known, worths, otherwise)


class GoalModel(Protocol):
    """A model of what an LLM would suggest."""

    def __call__(self, env: DeviceEnv, state: Any) -> jax.Array:
        """Returns log-odds that each goal is suggested for a state of `env` [G]."""
        ...


class Goals(NamedTuple):
    """A state, and its goals, G in all."""

    inner: Any
    reached: jax.Array  # [G] bool; paid in this episode, or of the same meaning as one that was
    suggested: jax.Array  # [G] float32; for the present state: what reaching each is worth, 0 of those not suggested
    num_other: jax.Array  # [] float32; suggested for it, and none of the goals
    possible: jax.Array  # [G] bool; by the oracle, in the present state
    paid: jax.Array  # [] float32; by the last action
    num_paid: jax.Array  # [] int32; actions paid in this episode
    was_suggested: jax.Array  # [G] bool; open in the states before this one
    num_open: jax.Array  # [4] int32; in the states before this one, by kind, see GOAL_STATS


@dataclasses.dataclass(frozen=True)
class WithGoals(DeviceWrapper):
    """An environment with goals suggested for its states.

    Attributes:
      settings: their suggester, the actions that reach them, and how often they pay.
      table: an LLM's suggestions so far, on the device or the host; None: nothing.
      model: model of its suggestions; None: nothing.
    """

    settings: GoalConfig
    table: GoalTable | HostTable | None = None
    model: GoalModel | None = None

    @property
    def spec(self) -> EnvSpec:
        return goal_spec(self.env.spec)

    def inner(self, state: Goals) -> Any:
        return state.inner

    def suggesting(self, table: GoalTable | HostTable | None, model: GoalModel | None = None) -> "WithGoals":
        return dataclasses.replace(self, table=table, model=model)

    def reset(self, key: jax.Array) -> Goals:
        inner = self.env.reset(key)
        nothing = jnp.zeros(len(self.env.spec.goals), bool)
        none = jnp.zeros(4, jnp.int32)
        suggested = *self._suggest(inner, key), self.env.goals_possible(inner)
        return Goals(inner, nothing, *suggested, jnp.float32(0), jnp.int32(0), nothing, none)

    def step(self, state: Goals, action: jax.Array, key: jax.Array) -> Step[Goals]:
        state = self._counted(state)
        outcome = self.env.step(state.inner, action, key)
        taken = self.env.goals_reached(outcome.state, action, self.settings.success)
        paid, reached = pay(
            self._open(state), taken, state.reached, same_meaning(self.env.spec.goals, self.env.same_goals)
        )
        suggested = *self._suggest(outcome.state, key), self.env.goals_possible(outcome.state)
        num_paid = state.num_paid + (paid > 0)
        after = Goals(outcome.state, reached, *suggested, paid, num_paid, state.was_suggested, state.num_open)
        return outcome._replace(state=after)

    def _suggest(self, inner: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns what reaching each goal is worth [G], and how many other things are suggested []."""
        suggest, num_goals = SUGGESTERS[self.settings.suggester], len(self.env.spec.goals)
        found = suggest(self, inner, jax.random.fold_in(key, _SUGGESTING)).astype(jnp.float32)
        return found[:num_goals], found[num_goals:].sum()

    def _counted(self, state: Goals) -> Goals:
        """Returns a state, in which an action is to be taken, with its goals counted."""
        is_open = self._open(state) > 0
        is_timely = is_open & state.possible
        can_be = np.isin(self.env.spec.goals, self.env.attainable_goals)
        # Sums as products, which a CPU computes several times faster
        sums = jnp.stack([is_open, is_timely]).astype(jnp.float32) @ np.stack([can_be, ~can_be], 1).astype(np.float32)
        (can, can_not), (timely, timely_can_not) = sums.astype(jnp.int32)
        invalid = state.num_other.astype(jnp.int32)
        kinds = jnp.stack([timely + timely_can_not, can - timely, can_not - timely_can_not, invalid])
        return state._replace(was_suggested=state.was_suggested | is_open, num_open=state.num_open + kinds)

    def _open(self, state: Goals) -> jax.Array:
        """Returns what reaching each goal would pay now [G]. A task may ask for the same goal several times."""
        repeats = self.settings.repeats or self.settings.suggester == TASK
        return state.suggested * (~state.reached | repeats)

    def observe(self, state: Goals) -> dict[str, jax.Array]:
        shown = jnp.append(self._open(state), state.num_other)
        return {**self.env.observe(state.inner), GOAL_REWARD: state.paid, OPEN_GOALS: shown}

    def stats(self, state: Goals) -> jax.Array:
        kinds = state.num_open / jnp.maximum(1, state.num_open.sum())
        achieved = (state.was_suggested & state.reached).sum() / jnp.maximum(1, state.was_suggested.sum())
        stats = [state.num_paid[None], kinds, achieved[None]]
        return jnp.concatenate([self.env.stats(state.inner), *stats]).astype(jnp.float32)


def same_meaning(names: Sequence[str], groups: Sequence[tuple[str, ...]]) -> np.ndarray:
    """Returns [G, G] bool: goals that are the same, or of one group."""
    together = np.eye(len(names), dtype=bool)
    for group in groups:
        rows = [names.index(name) for name in group if name in names]
        together[np.ix_(rows, rows)] = True
    return together


def pay(worth: jax.Array, taken: jax.Array, reached: jax.Array, together: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Returns what an action is paid [], the most of the open goals that it reached, and the goals reached so far [G].

    Args:
      worth: [G] float32; what each goal would pay, 0 of those not open.
      taken: [G] bool; reached by this action.
      reached: [G] bool; before it.
      together: [G, G] bool, static; goals that mean the same.
    """
    paid = worth * taken
    reached = reached | (paid > 0)
    for group in np.unique(together[together.sum(1) > 1], axis=0):
        reached = reached | group & (paid[np.flatnonzero(group)] > 0).any()
    return paid.max(), reached


def rows_of(code: Any, size: int) -> Any:
    """Returns the two rows [2] of a table of this size that may hold a code [2] uint32."""
    return code & (size - 1)


def look_up(table: GoalTable, code: jax.Array, otherwise: jax.Array | float = 0.0) -> jax.Array:
    """Returns the table's row [G + 1] for the caption with this code [2]; `otherwise` [G + 1] where it has none."""
    rows = rows_of(code, len(table.codes)).astype(jnp.int32)
    is_first, is_second = (table.codes[rows] == code).all(1)
    worths = table.worths[jnp.where(is_first, *rows)].astype(jnp.float32)
    return jnp.where(is_first | is_second, worths, otherwise)


def _model(world: WithGoals, inner: Any, key: jax.Array) -> jax.Array:
    if world.model is None:
        return _llm(world, inner, key)
    found = world.model(world.env, inner) > SUGGESTED
    return _looked_up(world, inner, jnp.append(found.astype(jnp.float32), 0.0))  # a model names nothing else


def _llm(world: WithGoals, inner: Any, key: jax.Array) -> jax.Array:
    return _looked_up(world, inner, jnp.zeros(len(world.env.spec.goals) + 1))


def _looked_up(world: WithGoals, inner: Any, otherwise: jax.Array) -> jax.Array:
    if isinstance(world.table, HostTable):
        return world.table.look_up(world.env, inner, otherwise)
    return otherwise if world.table is None else look_up(world.table, world.env.caption_code(inner), otherwise)


def _random(world: WithGoals, inner: Any, key: jax.Array) -> jax.Array:
    order = jax.random.permutation(key, len(world.env.spec.goals))
    return order < world.settings.count


# --goal_suggester -> function that returns what reaching the goals is worth [G], for a state of `env` and a separate
# key; one that may suggest other things, [G + 1], last their number
SUGGESTERS: dict[str, Callable[[WithGoals, Any, jax.Array], jax.Array]] = {
    "llm": _llm,
    "model": _model,
    "oracle": lambda world, inner, key: world.env.goals_possible(inner),
    "task": lambda world, inner, key: world.env.goal_pursued(inner),
    "all": lambda world, inner, key: jnp.ones(len(world.env.spec.goals), bool),
    "random": _random,
}
