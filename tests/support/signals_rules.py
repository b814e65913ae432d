"""The rule-based judge's rules for `signals_plugin`."""

from collections.abc import Sequence


def suggest_goals(caption: bytes) -> Sequence[str]:
    return ("say 1", "sing") if caption.rstrip(b".")[-1:] in b"1357" else ("say 0", "answer 1")
