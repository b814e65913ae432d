"""A disk that is full, as far as this process can tell."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(max_bytes: int = 0) -> Iterator[None]:
    """Meanwhile no file grows beyond `max_bytes`: the kernel refuses it as it refuses what a disk has no room for."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
