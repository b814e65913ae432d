"""Prompt files: the wording of a query, an environment's or a user's.

A prompt file holds `kind`, `system`, `user` with the kind's placeholders ({message}; or {first} and {second}), and,
where `user` has the placeholders {goal} and {answer}, the texts `goals` by goal key and `answers` by answer style.
`again`, optional, is the user's turn after an unreadable answer. Suggestions: `rewrite`, optional, lists pairs, a
regular expression and what to write for it in a caption; captions that read alike then are one query. A kind may need
further texts, such as code's `improve` (with {samples}) and `failed` (with {error}). Ranking: `answer_key` is the name
under which the answer declares its choice. A text is a string or a list of lines. The captions come last, so that a
server's prefix cache covers everything before them.
"""

import difflib
import pathlib
import re
from collections.abc import Sequence

from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.host.json_files import read_json
from oni_jax.settings.fields import UserError

DEFAULT_ANSWER_KEY = "best_description"
DEFAULT_AGAIN = "That can't be read as an answer. Answer once more, in exactly the form asked for."
MAX_FILE_BYTES = 1 << 20


def read_prompt_file(path: pathlib.Path) -> dict:
    """Reads and checks a prompt file, see `check_prompt`. Raises UserError."""
    try:
        data = read_json(path, MAX_FILE_BYTES, follows_links=True)
    except (OSError, ValueError) as error:
        raise UserError(f"prompt file {path} can't be read as JSON: {error}") from None
    return check_prompt(data, f"prompt file {path}")


def check_prompt(data: object, source: str) -> dict:
    """Checks what a prompt file holds; `again`, `answer_key`, `goals` and `answers` have defaults.

    source: where it is from, in words.

    Raises:
        UserError: it is no prompt.
    """
    if not isinstance(data, dict):
        raise UserError(f"{source} must hold a JSON object with `kind`, `system` and `user`")
    if (kind := data.get("kind")) not in tuple(QUERIES):
        raise UserError(f"{source}: `kind` must be one of {', '.join(QUERIES)}")
    placeholders = QUERIES[kind].placeholders
    texts = {key: _text(data.get(key), source, key) for key in ("system", "user")}
    texts |= {key: _text(data.get(key), source, key) for key in QUERIES[kind].texts}
    texts["again"] = _text(data.get("again", DEFAULT_AGAIN), source, "again")
    for key in ("user", "again"):
        _check_braces(texts[key], [*placeholders, "{goal}", "{answer}"], f"{source}: `{key}`")
    for placeholder in placeholders:
        if placeholder not in texts["user"]:
            raise UserError(f"{source}: `user` has no placeholder {placeholder}: write it at its end")
    answer_key = data.get("answer_key", DEFAULT_ANSWER_KEY)
    if not isinstance(answer_key, str) or not re.fullmatch(r"[A-Za-z]\w{0,63}", answer_key, re.ASCII):
        raise UserError(f"{source}: `answer_key` must be a name of letters, digits and underscores")
    choices = {}
    for group in ("goals", "answers"):
        members = data.get(group, {})
        if not isinstance(members, dict):
            raise UserError(f"{source}: `{group}` must be a JSON object of texts")
        choices[group] = {key: _text(text, source, f"{group}.{ascii(key)[1:-1]}") for key, text in members.items()}
        if misplaced := [name for name in placeholders if any(name in text for text in choices[group].values())]:
            raise UserError(f"{source}: {misplaced[0]} belongs into `user`, not into `{group}`")
    rewrites = _rewrites(data.get("rewrite", []), source)
    return {"kind": kind, **texts, "answer_key": answer_key, "rewrite": rewrites, **choices}


def _check_braces(text: str, known: Sequence[str], source: str) -> None:
    """Raises UserError where a text has a placeholder that reads like a known one, and is none."""
    names = [placeholder[1:-1] for placeholder in known]
    for found in re.finditer(r"\{\s*(\w+)\s*\}", text):
        near = difflib.get_close_matches(found[1].lower(), names, 1)
        if near and found[0] not in known:
            raise UserError(f"{source} has {found[0]}, which nothing is filled into; did you mean {{{near[0]}}}?")


def _rewrites(pairs: object, source: str) -> list[tuple[re.Pattern[str], str]]:
    try:
        assert isinstance(pairs, list)
        compiled = [(re.compile(pattern), by) for pattern, by in pairs]
        for pattern, by in compiled:
            pattern.sub(by, "")
            re.sub(f"{pattern.pattern}|", by, "")  # fails now if `by` names a group that is not there
        return compiled
    except (AssertionError, IndexError, TypeError, ValueError, re.error) as error:
        problem = f": {error}" if str(error) else ""
        text = f"{source}: `rewrite` must be a list of pairs, a regular expression and its replacement{problem}"
        raise UserError(text) from None


def _text(value: object, source: str, key: str) -> str:
    lines = value if isinstance(value, list) else [value]
    words = [line for line in lines if isinstance(line, str)]
    if len(words) < len(lines):
        raise UserError(f"{source}: `{key}` must be a text or a list of lines")
    text = "\n".join(words)
    if not text.strip() or re.search("[\ud800-\udfff]", text):
        raise UserError(f"{source}: `{key}` is empty or holds a lone surrogate (half a character)")
    return text
