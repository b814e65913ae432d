"""Texts of Crafter's states, made and read on the host. Sources: ELLM (arXiv 2302.06692); SmartPlay, as BK uses it."""

import re

import numpy as np

from oni_jax.envs.crafter import view
from oni_jax.envs.crafter.things import ITEMS, MAX_AMOUNT, NAMES, PLAYER, TABLE, VITALS

_LACKING = ("hurt", "hungry", "thirsty", "sleepy")
_LOST = "Error, you are out of the map."
_SLEEPING = "You are sleeping, and will not be able take actions until energy is full. "
_DIED = "You died. "


def ellm_parts(key: np.ndarray) -> tuple[str, str, str]:
    """Returns ELLM's texts of a `view.ellm_key`: what is seen and faced, the inventory, and how one feels."""
    visible = [NAMES[i] for i, bit in zip(view.ELLM_LISTED, np.unpackbits(key[:2], bitorder="little")) if bit]
    names = sorted("crafting table" if name == NAMES[TABLE] else name for name in visible)
    listed = names[0] if len(names) == 1 else ", ".join([*names[:-1], f"and {names[-1]}"]) if names else ""
    target = f" you are targeting {NAMES[key[2]]}." if key[2] else ""
    owned = [name for name, bit in zip(ITEMS[len(VITALS) :], np.unpackbits(key[3:5], bitorder="little")) if bit]
    lacking = [word for word, bit in zip(_LACKING, np.unpackbits(key[5:], bitorder="little")) if bit]
    names = ["plant" if name == "sapling" else name for name in owned]
    return (
        f"you see {listed}.{target}",
        f"you have in your inventory {', '.join(names)}." if names else "",
        f"you feel {', '.join(lacking)}." if lacking else "",
    )


def ellm_caption(key: np.ndarray) -> bytes:
    """Returns ELLM's whole text of a `view.ellm_key`."""
    return " ".join(part for part in ellm_parts(key) if part).encode()


_READ = re.compile(
    r"you see (?P<seen>[a-z, ]*)\.( you are targeting (?P<faced>[a-z]+)\.)?"
    r"( you have in your inventory (?P<owned>[a-z_, ]+)\.)?( you feel (?P<lacking>[a-z, ]+)\.)?"
)
_SEEN = ["crafting table" if i == TABLE else NAMES[i] for i in view.ELLM_LISTED]
_OWNED = ["plant" if name == "sapling" else name for name in ITEMS[len(VITALS) :]]
NUM_ELLM_FEATURES = len(_SEEN) + len(NAMES) - 1 + len(_OWNED) + len(_LACKING)


def read_ellm_caption(caption: bytes) -> np.ndarray | None:
    """Returns what ELLM's text says as [NUM_ELLM_FEATURES] float32, as `view.ellm_features`; None: no such text."""
    found = _READ.fullmatch(caption.decode("latin-1").lower())
    if not found:
        return None
    bits: list[bool] = []
    for group, names in (("seen", _SEEN), ("faced", NAMES[1:]), ("owned", _OWNED), ("lacking", _LACKING)):
        words = {*re.sub("(^|, )and ", r"\1", found[group] or "").split(", ")} - {""}
        if not words <= {*names}:
            return None
        bits += [name in words for name in names]
    return np.array(bits, np.float32)


def bk_caption(key: np.ndarray) -> bytes:
    """Returns BK's text of a `view.bk_key`."""
    nearest, faced = key[: len(NAMES)], key[len(NAMES)]
    inventory, flags = key[len(NAMES) + 1 : -1], key[-1]
    if flags & view.OUTSIDE:
        return _LOST.encode()
    seen = [
        f"{NAMES[i]} at {_where(int(index))}"
        for i, index in enumerate(nearest)
        if i not in (0, PLAYER) and index != view.NOT_SEEN
    ]
    state = _SLEEPING if flags & view.ASLEEP else _DIED if flags & view.DEAD else ""
    vitals = ", ".join(f"{name}: {amount}/{MAX_AMOUNT}" for name, amount in zip(VITALS, inventory))
    owned = [f"{n} {name}" for name, n in zip(ITEMS[len(VITALS) :], inventory[len(VITALS) :]) if n]
    return (
        state
        + (f"You see: {', '.join(seen)}." if seen else "You see nothing away from you.")
        + f"You face {NAMES[faced]} at your front. Your status: {vitals}. "
        + (f"Your have {', '.join(owned)}" if owned else "You have nothing in your inventory.")
    ).encode()


def _where(index: int) -> str:
    """Returns how far away and where a cell of the view is."""
    dx, dy = index // view.VIEW[1] - view.COLUMN, index % view.VIEW[1] - view.ROW
    words = ["up" if dy < 0 else "down" if dy > 0 else "", "left" if dx < 0 else "right" if dx > 0 else ""]
    return f"{abs(dx) + abs(dy)} steps to your {'-'.join(word for word in words if word)}"
