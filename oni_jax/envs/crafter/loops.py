"""Loops over batches whose rows need different numbers of rounds."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from oni_jax.envs.device.resets import update_rows

_SPARE = 1.25  # rows that are computed together, to those for which something happens on average
Carry = TypeVar("Carry")  # a pytree of arrays


def while_any(condition: Callable[[Carry], jax.Array], body: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """Is `jax.lax.while_loop` of a body that changes nothing once its condition is false.

    Vmapped, it goes on until no row's condition holds, and writes in place: where JAX selects between each row's old
    and new carry, which copies all of it in each round, the body is trusted.
    """

    @custom_vmap
    def loop(carry: Carry) -> Carry:
        return jax.lax.while_loop(condition, body, carry)

    @loop.def_vmap
    def _(axis_size: int, is_batched: Any, carry: Carry) -> tuple[Carry, Any]:
        (full,) = _broadcast(axis_size, is_batched, (carry,))
        out = jax.lax.while_loop(lambda carry: jax.vmap(condition)(carry).any(), jax.vmap(body), full)
        return out, jax.tree.map(lambda _: True, out)

    return loop(carry)


def when(happens: jax.Array, function: Callable[[Carry], Carry], carry: Carry, often: float) -> Carry:
    """Returns function(carry) where it happens [], else the carry. Vmapped, it is computed for those rows only.

    Args:
      happens: True if the function applies.
      function: carry -> carry.
      carry: a pytree of arrays.
      often: the fraction of rows for which it happens, on average.
    """

    @custom_vmap
    def choose(happens: jax.Array, carry: Carry) -> Carry:
        return jax.lax.cond(happens, function, lambda carry: carry, carry)

    @choose.def_vmap
    def _(axis_size: int, is_batched: Any, happens: jax.Array, carry: Carry) -> tuple[Carry, Any]:
        full = _broadcast(axis_size, is_batched, (happens, carry))
        out = update_rows(function, full[1], full[0], max(1, round(_SPARE * often * axis_size)))
        return out, jax.tree.map(lambda _: True, out)

    return choose(happens, carry)


def _broadcast(axis_size: int, is_batched: Any, arrays: Any) -> Any:
    return jax.tree.map(
        lambda x, is_row: x if is_row else jnp.broadcast_to(x, (axis_size, *x.shape)), arrays, tuple(is_batched)
    )
