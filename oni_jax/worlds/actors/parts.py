"""Parts of the actor processes: each is answered by a thread, on its inference devices."""

from collections.abc import Sequence
from typing import NamedTuple


class Part(NamedTuple):
    index: int
    workers: range
    groups: range  # groups of these processes
    devices: range  # indices of the inference devices that serve them; each has a table of core states
    first_table: int  # index of the first of these tables among those of all parts


def split(num_workers: int, num_groups: int, num_devices: int, num_parts: int) -> Sequence[Part]:
    """Splits the processes evenly. Devices are shared only where there are fewer than parts."""
    parts, first_table, per_worker = [], 0, num_groups // num_workers
    for i in range(num_parts):
        workers = range(i * num_workers // num_parts, (i + 1) * num_workers // num_parts)
        groups = range(workers.start * per_worker, workers.stop * per_worker)
        parts.append(Part(i, workers, groups, range(i % num_devices, num_devices, num_parts), first_table))
        first_table += len(parts[-1].devices)
    return parts
