"""Craftax-Classic's symbolic version as an environment of ours. `craftax` is imported when it is built.

A plugin: `python -m launch.train --plugin benchmarks.peers.craftax_classic --root_env Craftax-Classic-Symbolic-v1`.
"""

from typing import Any

import jax

from oni_jax.envs.device.gymnax_env import gymnax_environment
from oni_jax.envs.registry import register_environment
from oni_jax.parallel import AXIS_0, AXIS_1, Replicas

NAME = "Craftax-Classic-Symbolic-v1"


def make() -> tuple[Any, Any]:
    """Returns the environment, without its own auto-reset, and its parameters."""
    return _make(auto_reset=False)


def _make(auto_reset: bool) -> tuple[Any, Any]:
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name(NAME, auto_reset=auto_reset)
    return env, env.default_params


class AsShipped:
    """Random actions in N environments with its own auto-reset, in one jitted scan: its observations and outcomes.

    Args:
        num_envs: N, a multiple of the number of devices.
        unroll: T, steps of each in a call.
        replicas: devices over which the environments are sharded.
    """

    def __init__(self, num_envs: int, unroll: int, replicas: Replicas):
        self.num_envs, self.unroll = num_envs, unroll
        env, params = _make(auto_reset=True)

        def begin(_: Any, keys: jax.Array) -> Any:
            return jax.vmap(lambda key: env.reset(key, params)[1])(keys)

        def one(state: Any, key: jax.Array) -> tuple[Any, Any]:
            keys = jax.random.split(key)
            action = jax.random.randint(keys[0], (), 0, env.action_space(params).n)
            seen, state, *outcome = env.step(keys[1], state, action, params)
            return state, (seen, outcome[:2])

        def run(_: Any, carry: tuple[Any, jax.Array]) -> tuple[Any, Any]:
            state, keys = carry
            each = jax.vmap(lambda key: jax.random.split(key, unroll + 1))(keys)  # [N, T+1]
            state, seen = jax.lax.scan(lambda s, k: jax.vmap(one)(s, k), state, each[:, :-1].swapaxes(0, 1))
            return (state, each[:, -1]), seen

        keys = jax.random.split(jax.random.key(0), num_envs)
        state = jax.jit(replicas.sharded(begin, (AXIS_0,), AXIS_0))((), keys)
        self._carry = state, keys
        self._run: Any = jax.jit(replicas.sharded(run, (AXIS_0,), (AXIS_0, AXIS_1)))

    def run(self) -> Any:
        """Takes T steps of each environment, and waits for them."""
        self._carry, seen = self._run((), self._carry)
        return jax.block_until_ready(seen)


register_environment(gymnax_environment(NAME, make))
