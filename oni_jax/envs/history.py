"""Captions, and steps before the present one, as observations of any environment: `past5/image` are the images at the
last 5 steps.

`past<H>/<name>` [H, ...] holds the observation of that name at the H states before the present one, the oldest first;
`past<H>/actions` [H] int32 the action taken at each of these, `past<H>/times` [H] int32 the steps of the episode up to
it. Before an episode's start, its first state stands in, and NO_ACTION: a window depends on the episode so far, and on
nothing else.

`caption` [K] uint8 holds the caption: its text, cut off or zero-padded; of an environment that can run on a device, its
key. `registry.caption_reader` returns what turns either into the text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from oni_jax.envs.base import StepOutput, VectorEnv, VectorEnvWrapper
from oni_jax.settings.fields import cut_caption
from oni_jax.types import CAPTION, ArraySpec, EnvSpec

ACTIONS, TIMES = "actions", "times"
COUNTED = (ACTIONS, TIMES)  # sources that are no observations
NO_ACTION = -1
_NAME = re.compile(r"past([1-9]\d{0,3})/(.+)")


class Past(NamedTuple):
    """An observation of earlier steps, as its name says."""

    length: int  # H
    source: str  # name of the observation, or one of COUNTED


def parse_past(name: str) -> Past | None:
    """Returns what `past<H>/<name>` names; None for any other observation."""
    found = _NAME.fullmatch(name)
    return Past(int(found[1]), found[2]) if found else None


def past_name(length: int, source: str) -> str:
    """Returns the name of an observation at the `length` steps before."""
    return f"past{length}/{source}"


def past_of(names: Iterable[str]) -> Mapping[str, Past]:
    """Returns those of the names that are of earlier steps, and what they name."""
    return {name: past for name in names if (past := parse_past(name))}


def sources(names: Iterable[str]) -> list[str]:
    """Returns the names of the environment's observations that the names need: themselves, or of earlier steps."""
    needed = [past.source if (past := parse_past(name)) else name for name in names]
    return list(dict.fromkeys(name for name in needed if name not in COUNTED))


def offered(spec: EnvSpec) -> dict[str, ArraySpec]:
    """Returns the specs of an environment's observations and, where it has captions, of CAPTION."""
    caption = {CAPTION: ArraySpec((spec.caption_size,), "uint8")} if spec.has_captions else {}
    return {**spec.observations, **caption}


def past_specs(spec: EnvSpec, names: Iterable[str]) -> dict[str, ArraySpec]:
    """Returns the specs of observations of earlier steps, sorted; `spec`: of the environment, with their sources."""

    sources = offered(spec)

    def of(past: Past) -> ArraySpec:
        if past.source in COUNTED:
            return ArraySpec((past.length,), "int32")
        source_spec = sources[past.source]
        return source_spec._replace(shape=(past.length, *source_spec.shape))

    return {name: of(past) for name, past in sorted(past_of(names).items())}


def with_history(env: VectorEnv, spec: EnvSpec) -> VectorEnv:
    """Returns the environments, showing what `spec` says: their observations, captions, and earlier steps."""
    if not past_of(spec.observations) and not _lacks_captions(env, spec):
        return env
    return HistoryVectorEnv(env, spec)


def _lacks_captions(env: VectorEnv, spec: EnvSpec) -> bool:
    """Returns whether the observation CAPTION is to be shown, which the environments don't show themselves."""
    return CAPTION in spec.observations and CAPTION not in env.spec.observations


class HistoryVectorEnv(VectorEnvWrapper):
    """Environments that show observations of earlier steps too, and captions."""

    def __init__(self, env: Any, spec: EnvSpec):
        super().__init__(env, spec)
        self._past = past_of(spec.observations)
        self._caption_size = spec.caption_size if _lacks_captions(env, spec) else 0
        rows = self.num_envs, 1 + max((past.length for past in self._past.values()), default=0)
        named = {past.source for past in self._past.values()} - {*COUNTED}
        specs = {name: spec.observations[name] for name in sorted(named)}
        # The present step's is the last; of the actions, the one that led to it.
        self._seen = {name: np.zeros((*rows, *x.shape), x.dtype) for name, x in specs.items()}
        self._seen |= {ACTIONS: np.full(rows, NO_ACTION, np.int32), TIMES: np.zeros(rows, np.int32)}

    def reset(self, out: StepOutput) -> None:
        self._env.reset(out)
        self._write_captions(out.records, out.texts.captions)
        self._begin(np.ones(self.num_envs, bool), out.records)
        self._show(out.records)

    def step(self, actions: np.ndarray, out: StepOutput) -> None:
        self._env.step(actions, out)
        ended = out.records["terminated"] | out.records["truncated"]
        self._write_captions(out.records, out.texts.captions)
        if ended.any():
            self._write_captions(out.finals, out.texts.final_captions)
        for name, rows in self._seen.items():
            rows[:, :-1] = rows[:, 1:]
            if name == ACTIONS:
                rows[:, -1] = actions
            elif name == TIMES:
                rows[:, -1] += 1
            else:
                new = out.records[name]
                each = ended.reshape(-1, *[1] * (new.ndim - 1))
                rows[:, -1] = np.where(each, out.finals[name], new)
        if ended.any():
            self._show(out.finals)
            self._begin(ended, out.records)
        self._show(out.records)

    def _write_captions(self, records: np.ndarray, captions: Sequence[bytes]) -> None:
        if size := self._caption_size:
            padded = b"".join(cut_caption(caption, size).ljust(size, b"\0") for caption in captions)
            records[CAPTION] = np.frombuffer(padded, np.uint8).reshape(-1, size)

    def _begin(self, chosen: np.ndarray, records: np.ndarray) -> None:
        """Fills the chosen environments' rows with the present observations, an episode's first."""
        for name, rows in self._seen.items():
            start = {ACTIONS: NO_ACTION, TIMES: 0}
            rows[chosen] = start[name] if name in start else records[name][chosen][:, None]

    def _show(self, records: np.ndarray) -> None:
        for name, past in self._past.items():
            rows = self._seen[past.source]
            # The action beside a state is the one taken there: that which led to the next.
            records[name] = rows[:, -past.length :] if past.source == ACTIONS else rows[:, -1 - past.length : -1]

    def save(self) -> dict[str, np.ndarray]:
        saved = self._env.save()
        return saved and {**saved, **{f"past/{name}": rows.copy() for name, rows in self._seen.items()}}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._env.restore(saved)
        for name, rows in self._seen.items():
            rows[:] = saved[f"past/{name}"]
