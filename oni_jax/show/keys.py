"""Keys: the bytes that a terminal sends for them, their names, and texts about them."""

from collections.abc import Sequence

from oni_jax.envs.display import ActionKey

ESCAPE, ENTER, LINE_FEED, DELETE = 27, 13, 10, 127
META = 0x80
# Bytes of the arrow keys, in both cursor key modes of terminals.
ARROWS = {
    bytes([ESCAPE, opening, final]): key
    for opening in b"[O"
    for final, key in zip(b"ABCD", (ord("k"), ord("j"), ord("l"), ord("h")))
}


def pressed_keys(data: bytes) -> list[int]:
    """Returns the keys that a terminal has sent, by NetHack's codes: Escape before a character is Meta."""
    keys = []
    while data:
        if arrow := ARROWS.get(data[:3]):
            keys.append(arrow)
            data = data[3:]
        elif data[0] == ESCAPE and len(data) > 1 and data[1:2] not in (b"[", b"O"):
            keys.append(META | data[1])
            data = data[2:]
        elif data[0] == ESCAPE and len(data) > 1:
            return keys  # an unknown key, such as F1: where its bytes end is unknown too
        else:
            # Some terminals turn Enter into a line feed, which no task has.
            keys.append(ENTER if data[0] == LINE_FEED else data[0])
            data = data[1:]
    return keys


def key_text(key: int) -> str:
    """Returns a key's name as in NetHack's help, such as k, ^D, M-p, Enter."""
    if key & META:
        return f"M-{key_text(key & ~META)}"
    names = {ENTER: "Enter", ESCAPE: "Esc", ord(" "): "Space", DELETE: "^?"}
    return names.get(key) or (f"^{chr(key | 0x40)}" if key < ord(" ") else chr(key))


def action_text(action: ActionKey) -> str:
    """Returns the name of an action and its key, such as "far north (K)"."""
    return f"{action.words} ({key_text(action.key)})"


def key_help(keys: Sequence[ActionKey], moves: str) -> str:
    """Returns the keys of a task and their actions, as text of a few lines."""
    return ", ".join([moves, *(f"{key_text(key)} {words}" for key, words, in_help in keys if in_help)])
