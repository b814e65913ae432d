"""Texts of segments: n actions, and the n + 1 states around them. Source: BK (arXiv 2407.03964)."""

from collections.abc import Sequence


def segment_caption(descriptions: Sequence[str], actions: Sequence[str]) -> str:
    """Returns the text of a segment: one step in a line, more as a history of full sentences."""
    if len(actions) == 1:
        before, after = descriptions
        return f"{before} You choose the action: {actions[0]}. Current observation: {after}. \n"
    return history_caption([_as_sentence(text) for text in descriptions[:-1]] + [descriptions[-1]], actions)


def history_caption(descriptions: Sequence[str], actions: Sequence[str]) -> str:
    """Returns the text of a segment as a history, with the descriptions as they are."""
    steps = [
        f"Step {i}: {text} You choose the action: {action}.\n"
        for i, (text, action) in enumerate(zip(descriptions, actions), 1)
    ]
    return "".join(["Agent history:\n", *steps, f"Current observation: {descriptions[-1]}. \n"])


def _as_sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith(".") else f"{text}."


def action_name(words: Sequence[str], action: int) -> str:
    """Returns an action in words, where the environment has any."""
    return words[action] if action < len(words) else f"action {action}"
