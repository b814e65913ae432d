"""Memory that settings ask for: what can't fit is refused in a line, before the kernel ends processes."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from oni_jax.host.runtime import memory_bytes
from oni_jax.settings.fields import UserError

GIB = 1 << 30
LEARNER_BYTES = 300_000_000  # a process with JAX takes at least that
PROCESS_BYTES = 35_000_000  # one without JAX; benchmarks/README.md
GAME_BYTES = 500_000  # a game of NetHack


def check_fits(needed: Mapping[str, float], lower: str, there_bytes: int | None = None, where: str = "") -> None:
    """Refuses what needs more memory than this process may have, by the machine, its control groups and Slurm.

    Args:
        needed: bytes, at least, of each part, in words.
        lower: what to do.
        there_bytes: None: found out.
        where: the memory is, in words.

    Raises:
        UserError: it does not fit; the text has the numbers.
    """
    there_bytes = memory_bytes() if there_bytes is None else there_bytes
    if (total := sum(needed.values())) > there_bytes:
        parts = sorted(needed.items(), key=lambda part: -part[1])
        shown = ", ".join(f"{words} {size / GIB:,.1f}" for words, size in parts if size > 0.01 * total)
        raise UserError(
            f"{total / GIB:,.1f} GiB of memory are needed at least ({shown}), and there are "
            f"{there_bytes / GIB:,.1f} GiB{where}: {lower}"
        )


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pauses the search for reference cycles: among a million new lists it takes ten times as long as making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
