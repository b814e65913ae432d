"""Count of XLA's compilations: a step with a new shape stalls for seconds, without a message."""

from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"  # also recorded when the persistent cache has the program


class CompilationCounter:
    """Counts the programs that this process compiles, in any thread, until `close`."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **details: Any) -> None:
        self.count += event == _EVENT

    def close(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
