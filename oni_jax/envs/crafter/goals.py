"""Goals in Crafter's states: which an action reached, and which one can pursue."""

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.crafter import view
from oni_jax.envs.crafter.prerequisites import PREREQUISITES
from oni_jax.envs.crafter.rules import EVENTS, SLEEP, Rules
from oni_jax.envs.crafter.state import State
from oni_jax.envs.crafter.things import ENERGY, ITEM, MAX_AMOUNT, NAMES, TABLE
from oni_jax.types import Array


def reached(rules: Rules, state: State, action: Array, success: str) -> jax.Array:
    """Returns the goals [G] that an action [] reached, which led to a state; `success`: of --goal_success."""
    goals = np.array(rules.goals)
    by_event = np.array([goals == event for event in EVENTS])
    by_action = jnp.asarray(np.array([goals == one.words for one in rules.actions]))[action]
    done = jnp.asarray(by_event)[state.event]
    if success == "strict":
        return done
    return done | by_action & (state.names_something | (success == "tried"))


def possible(goals: tuple[str, ...], seen: view.Seen) -> jax.Array:
    """Returns the goals [G] that ELLM's oracle suggests."""
    known = [goal for goal in goals if goal in PREREQUISITES]
    rows = [PREREQUISITES[goal] for goal in known]
    uses = [(i, ITEM[name], amount) for i, row in enumerate(rows) for name, amount in row.uses]
    users, items, amounts = map(np.array, zip(*uses))
    needed = np.array([[name in row.seen for row in rows] for name in NAMES])
    in_view = view.in_view(seen)
    lacks = jnp.concatenate([seen.inventory[items] < amounts, ~in_view]).astype(jnp.float32)
    holds = lacks @ np.concatenate([users[:, None] == np.arange(len(rows)), needed]).astype(np.float32) == 0
    is_sleep, is_table = (np.isin(known, words) for words in (SLEEP.words, "place crafting table"))
    is_awake = seen.inventory[ENERGY] >= MAX_AMOUNT
    holds = holds & ~(is_sleep & is_awake) & ~(is_table & in_view[TABLE])
    return holds.astype(jnp.float32) @ (np.array(known)[:, None] == np.array(goals)).astype(np.float32) > 0
