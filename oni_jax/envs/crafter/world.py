"""A step of a Crafter world: the player, then what is near it, then what comes and goes."""

import jax

from oni_jax.envs.crafter import balance, creatures, player, things
from oni_jax.envs.crafter.draws import Draws
from oni_jax.envs.crafter.loops import when
from oni_jax.envs.crafter.rules import Rules
from oni_jax.envs.crafter.state import State


def step(rules: Rules, state: State, action: jax.Array, draws: Draws) -> State:
    """Takes an action [] int32."""
    state = state._replace(num_steps=state.num_steps + 1, paid_health=state.inventory[things.HEALTH])
    num_old = state.num_objects
    state = player.update(rules, state, action, draws.of_player())
    state = creatures.update(state, draws, num_old)
    is_due = state.num_steps % balance.PERIOD == 0
    return when(is_due, lambda carry: (balance.update(*carry), carry[1]), (state, draws), 1 / balance.PERIOD)[0]
