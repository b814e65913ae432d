"""Prompts that ask an LLM about one caption, or two. Their wording is read from files."""

import dataclasses
import hashlib
import json
import pathlib
import re
import unicodedata
from collections.abc import Mapping, Sequence

from oni_jax.annotation.prompt_files import MAX_FILE_BYTES, check_prompt, read_prompt_file
from oni_jax.annotation.queries.base import QueryKind, blaming
from oni_jax.annotation.queries.by_goal import ByGoal
from oni_jax.annotation.queries.choices import TwoChoices
from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.envs.base import Language
from oni_jax.host.files import read_regular
from oni_jax.settings.annotation import BY_GOAL, REASONED, AnnotationConfig
from oni_jax.settings.fields import UserError, caption_bytes, caption_text

MAX_GOAL_CHARS = 2000
MAX_FIRST_ANSWER_CHARS = 4000

Turn = tuple[str, str]  # role (system, user, assistant) and content

# Servers prepend the beginning-of-text token themselves.
LLAMA3_TEMPLATE = (
    "<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{user}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
GOALS_OPENING = "There are several goals. Judge under each of them by itself, as if there were no other:"
LINES_OPENING = "Answer with one line for each goal and nothing else: the goal's name, a colon and its label."
PLAIN_TEMPLATE = "{system}\n\n{user}\n\nAnswer:"

# An escaped caption opens no tag, opens no special token of a chat template (<...>, [INST]), and has no control
# character, also none for the direction of writing.
_CONTROL = (*range(0x20), *range(0x7F, 0xA0))
_ESCAPES = {code: f"\\x{code:02x}" for code in (*_CONTROL, ord("<"), ord("\\"))}
_BEYOND_LATIN_1 = re.compile("[^\0-\xff]")
_JOINERS = "\u200c\u200d"  # joiners of letters, which many scripts need
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U(000[0-9a-f]{5}|0010[0-9a-f]{4})")
_TOKEN_BRACKET = re.compile(r"\[(?=/?[A-Z_]{3,}\])")
# An answer keeps its line breaks, and the tags that were asked for.
_ANSWER_ESCAPES = {code: text for code, text in _ESCAPES.items() if code in _CONTROL and code != ord("\n")}
_FOREIGN_TAG = re.compile(r"<(?!/?(?:knowledge|analysis|label)>)")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A kind of query in words. `digest` identifies kind, wording, goal and answer style in the label store."""

    kind: QueryKind
    system: str
    pieces: tuple[str, ...]  # the user's turn: texts, with placeholders between them
    again: str  # the user's next turn after an answer that can't be read
    answer_key: str
    digest: str
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # `QueryKind.texts`
    rewrites: Sequence[tuple[re.Pattern[str], str]] = ()

    def rewrite(self, caption: bytes) -> bytes:
        """Returns the caption as a query words it, by the prompt file's `rewrite` where its kind rewrites."""
        text = caption_text(caption)
        for pattern, by in self.rewrites:
            text = pattern.sub(by, text)
        return caption_bytes(text)

    def user(self, item: tuple[bytes, ...]) -> str:
        """Renders the user's turn. Captions are decoded and escaped: they are untrusted.

        Raises:
            ValueError: an item with another number of captions than the kind's.
            UserError: the kind of query can't render it.
        """
        with blaming(self.kind, "render"):
            captions = [self.kind.render(escape(caption)) for caption in item]
        texts = dict(zip(self.kind.placeholders, captions, strict=True))
        # Filled in piece by piece: the goal may contain a placeholder's name.
        return "".join(texts[piece] if i % 2 else piece for i, piece in enumerate(self.pieces))

    def turns(self, item: tuple[bytes, ...], first_answer: str = "") -> tuple[Turn, ...]:
        """The conversation that asks about an item; with an unreadable answer, the one that asks again."""
        opening = (("system", self.system), ("user", self.user(item)))
        if not first_answer.strip():  # some servers refuse an empty turn
            return opening
        # Untrusted too: a caption may have been a prompt injection.
        text = _FOREIGN_TAG.sub(r"\\x3c", _TOKEN_BRACKET.sub(r"\\x5b", first_answer.translate(_ANSWER_ESCAPES)))
        # The end of a long answer: all of it, and another, may exceed the model's context.
        return (*opening, ("assistant", text[-MAX_FIRST_ANSWER_CHARS:]), ("user", self.again))


def escape(caption: bytes) -> str:
    """Decodes and escapes a caption for a prompt."""
    text = _TOKEN_BRACKET.sub(r"\\x5b", caption_text(caption).translate(_ESCAPES))
    return _BEYOND_LATIN_1.sub(lambda match: _visible(match[0]), text)


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs":  # spaces
        return character
    return character.encode("unicode_escape").decode()


def unescape(text: str) -> bytes:
    plain = _ESCAPED.sub(lambda match: chr(int(match[match.lastindex or 1], 16)), text)
    return caption_bytes(plain)


def load_prompt(config: AnnotationConfig, language: Language | None, kind: str = "classification") -> Prompt:
    """Loads the prompt that the settings select.

    Args:
        config: names a prompt file, or a version of the environment's prompts.
        language: the environment's.
        kind: name of the kind of query.

    Raises:
        UserError: the prompt file is missing, invalid, or of another kind.
    """
    asked = QUERIES[kind].asks_as or kind
    source, data = _load(config, language, asked)
    style = REASONED if config.llm_answer == BY_GOAL else config.llm_answer  # one goal's, and as it is stored
    chosen = {"answer": data["answers"].get(style), "goal": _goal(config, source, data)}
    return _made(config, kind, source, data, chosen, style)


def load_joint_prompt(
    config: AnnotationConfig, goals: Sequence[str], language: Language | None, kind: str = "classification"
) -> Prompt:
    """Loads the prompt that asks about all goals in one query, see `queries.by_goal`. Its digest is of no store.

    Raises:
        UserError: see `load_prompt`.
    """
    labels = QUERIES[kind]
    assert isinstance(labels, TwoChoices), f"{kind} has no labels of captions"
    source, data = _load(config, language, kind)
    texts = [goal_text(dataclasses.replace(config, goal_key=goal), language, kind) for goal in goals]
    lines = (f"{goal}: {' or '.join(reversed(labels.choices))}" for goal in goals)
    chosen = {
        "goal": "\n".join([GOALS_OPENING, *(f"{goal}: {text}" for goal, text in zip(goals, texts))]),
        "answer": "\n".join([LINES_OPENING, *lines]),
    }
    config = dataclasses.replace(config, goal_key=",".join(goals))
    made = _made(config, kind, source, data, chosen, BY_GOAL)
    return dataclasses.replace(made, kind=ByGoal(labels, goals))


def _made(
    config: AnnotationConfig, kind: str, source: str, data: dict, chosen: Mapping[str, str | None], style: str
) -> Prompt:
    """Makes a prompt of a file's texts; {goal} and {answer} stand for `chosen`. Raises UserError: one is missing."""
    asked = QUERIES[kind].asks_as or kind

    def fill(text: str) -> str:
        def choice(match: re.Match[str]) -> str:
            if (found := chosen[match[1]]) is None:
                key = config.goal_key if match[1] == "goal" else style
                raise UserError(_missing_text(source, data, f"{match[1]}s", key))
            return found

        return re.sub(r"\{(goal|answer)\}", choice, text)

    placeholders = "|".join(map(re.escape, QUERIES[kind].placeholders)) or "(?!)"
    pieces = tuple(fill(piece) for piece in re.split(f"({placeholders})", data["user"]))
    # `again` is not part of the digest: labels stay valid when it is reworded.
    goal_key = "" if config.goal else config.goal_key
    parts = [asked, data["system"], "".join(pieces), goal_key, style]
    parts += [data[name] for name in QUERIES[kind].texts]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    texts = {name: data[name] for name in QUERIES[kind].texts}
    again, rewrites = fill(data["again"]), data["rewrite"] if QUERIES[kind].rewrites else ()
    return Prompt(QUERIES[kind], data["system"], pieces, again, data["answer_key"], digest, texts, rewrites)


def goal_text(config: AnnotationConfig, language: Language | None, kind: str = "classification") -> str:
    """Returns the goal's text in the prompt of this kind. Raises UserError if the prompt has none."""
    source, data = _load(config, language, kind)
    text = _goal(config, source, data)
    if text is None:
        raise UserError(_missing_text(source, data, "goals", config.goal_key))
    return text


def _missing_text(source: str, data: dict, group: str, key: str) -> str:
    return f"{source}: its `{group}` has no text for `{key}`; it has {', '.join(data[group]) or 'none'}"


def _load(config: AnnotationConfig, language: Language | None, kind: str) -> tuple[str, dict]:
    """Reads --prompt_file, else the environment's prompt, else the kind's. Raises UserError."""
    path = pathlib.Path(language.prompts, f"{kind}_{config.prompt_version}.json") if language else None
    if config.prompt_file:
        path = pathlib.Path(config.prompt_file)
    elif QUERIES[kind].prompt and not (path and path.exists()):
        source = f"the prompt of the query {kind}"
        return source, check_prompt({**QUERIES[kind].prompt, "kind": kind}, source)
    elif path:
        if not path.exists():
            known = ", ".join(sorted(found.stem for found in path.parent.glob("*.json"))) or "none"
            raise UserError(
                f"--prompt_version {config.prompt_version}: this environment has no {path} (that folder has {known}); "
                "give another, or a --prompt_file"
            )
    else:
        raise UserError("this --root_env has no prompts: give a --prompt_file, or its plugin a Language")
    data = read_prompt_file(path)
    if data["kind"] != kind:
        raise UserError(f"prompt file {path}: its `kind` is {data['kind']}, and a prompt for {kind} is needed")
    return f"prompt file {path}", data


def _goal(config: AnnotationConfig, source: str, data: dict) -> str | None:
    """Returns --goal, else the file's text for the goal key, None where it has none. Raises UserError."""
    goal = config.goal
    if not goal:
        return data["goals"].get(config.goal_key)
    if not goal.strip():
        raise UserError("--goal: is blank; say what the player wants, or leave it out")
    if len(goal) > MAX_GOAL_CHARS:
        raise UserError(f"--goal: has {len(goal)} characters; say it in {MAX_GOAL_CHARS} at most")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in goal):
        raise UserError("--goal: holds line breaks or control characters; write it as plain text on one line")
    if "{goal}" not in data["user"]:
        raise UserError(f"--goal: {source} has no placeholder for it; write {{goal}} into its `user`")
    return goal.strip()


def load_chat_template(name: str) -> str:
    """Loads the template named by --llm_chat_template: llama3, none, or a file. Raises UserError."""
    if name in ("llama3", "none"):
        return LLAMA3_TEMPLATE if name == "llama3" else PLAIN_TEMPLATE
    try:
        template = read_regular(name, MAX_FILE_BYTES, follows_links=True).decode()
    except (OSError, ValueError) as error:
        raise UserError(f"chat template {name}: neither llama3, none nor a readable file: {error}") from None
    if "{system}" not in template or "{user}" not in template:
        raise UserError(f"chat template {name} needs the placeholders {{system}} and {{user}}")
    return template


def render_chat(template: str, turns: Sequence[Turn]) -> str:
    """Renders a conversation in a chat template, in one pass: braces inside a turn stay as they are.

    The template's text between {system} and {user} also precedes each later user turn, and its text after {user}
    follows it. A template without these two, once each and in this order, gets blank lines there instead.
    """
    (_, system), (_, user), *rest = turns
    pieces = re.split(r"\{(system|user)\}", template)
    text = "".join({"system": system, "user": user}[piece] if i % 2 else piece for i, piece in enumerate(pieces))
    opening, closing = (pieces[2], pieces[4]) if pieces[1::2] == ["system", "user"] else ("\n\n", "\n\n")
    return text + "".join(content if role == "assistant" else opening + content + closing for role, content in rest)
