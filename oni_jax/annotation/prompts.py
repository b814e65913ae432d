"""Prompts: what the LLM is asked about a message. Their wording is data, in prompts/*.json.

A prompt file holds `kind` (classification), `system`, `user` with a place {message}, and, where `user` has the places
{goal} and {answer}, the texts `goals` by goal key and `answers` by answer style. A text is a string or a list of lines.
The message comes last, so that a server's prefix cache serves everything before it.
"""

import dataclasses
import hashlib
import json
import pathlib
import re

from oni_jax.config import AnnotationConfig, UserError

PROMPT_DIR = pathlib.Path(__file__).with_name("prompts")
KINDS = ("classification",)
PLACE = "{message}"
MAX_FILE_BYTES = 1 << 20

# Servers put the beginning-of-text token in front by themselves.
LLAMA3_TEMPLATE = (
    "<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{user}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
PLAIN_TEMPLATE = "{system}\n\n{user}\n\nAnswer:"

# A message can open no tag and no special token of a chat template, and holds no control byte.
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0), ord("<"), ord("\\"))}


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What is asked about a message. `digest` stands for the wording, goal and answer style in the label store."""

    system: str
    template: str  # of the user's turn, with a place for the message
    digest: str

    def user(self, message: bytes) -> str:
        """The user's turn. The message's bytes are read as latin-1, and escaped: they are data."""
        return self.template.replace(PLACE, escape(message))


def escape(message: bytes) -> str:
    """A message as it stands in a prompt."""
    return message.decode("latin-1").translate(_ESCAPES)


def unescape(text: str) -> bytes:
    """The inverse of `escape`."""
    plain = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), text)
    return plain.encode("latin-1", "replace")


def load_prompt(config: AnnotationConfig) -> Prompt:
    """The prompt that the settings ask for. Raises UserError for a file that is none."""
    path = pathlib.Path(config.prompt_file) if config.prompt_file else PROMPT_DIR / f"{config.prompt_version}.json"
    data = read_prompt_file(path)
    template = data["user"]
    for place, key in (("goal", config.goal_key), ("answer", config.llm_answer)):
        if f"{{{place}}}" in template:
            text = data[f"{place}s"].get(key)
            if text is None:
                raise UserError(f"prompt file {path}: its `{place}s` has no text for `{key}`")
            template = template.replace(f"{{{place}}}", text)
    parts = json.dumps([data["kind"], data["system"], template, config.goal_key, config.llm_answer])
    return Prompt(data["system"], template, hashlib.sha256(parts.encode()).hexdigest()[:32])


def read_prompt_file(path: pathlib.Path) -> dict:
    """A prompt file's `kind`, `system`, `user`, `goals`, `answers`, checked. Raises UserError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
        data = json.loads(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"prompt file {path} can't be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"prompt file {path} must hold a JSON object with `kind`, `system` and `user`")
    if data.get("kind") not in KINDS:
        raise UserError(f"prompt file {path}: `kind` must be one of {', '.join(KINDS)}")
    texts = {key: _text(data.get(key), path, key) for key in ("system", "user")}
    if PLACE not in texts["user"]:
        raise UserError(f"prompt file {path}: `user` has no place for the message: write {PLACE} at its end")
    choices = {}
    for group in ("goals", "answers"):
        members = data.get(group, {})
        if not isinstance(members, dict):
            raise UserError(f"prompt file {path}: `{group}` must be an object of texts")
        choices[group] = {key: _text(text, path, f"{group}.{key}") for key, text in members.items()}
        if any(PLACE in text for text in choices[group].values()):
            raise UserError(f"prompt file {path}: {PLACE} belongs into `user`, not into `{group}`")
    return {"kind": data["kind"], **texts, **choices}


def _text(value: object, path: pathlib.Path, key: str) -> str:
    lines = value if isinstance(value, list) else [value]
    words = [line for line in lines if isinstance(line, str)]
    if len(words) < len(lines):
        raise UserError(f"prompt file {path}: `{key}` must be a text or a list of lines")
    text = "\n".join(words)
    if not text.strip() or re.search("[\ud800-\udfff]", text):
        raise UserError(f"prompt file {path}: `{key}` is empty or holds half a character (a lone surrogate)")
    return text


def load_chat_template(name: str) -> str:
    """The template named by --llm_chat_template: llama3, none, or a file. Raises UserError."""
    if name in ("llama3", "none"):
        return LLAMA3_TEMPLATE if name == "llama3" else PLAIN_TEMPLATE
    try:
        with open(name, encoding="utf-8") as file:
            template = file.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise UserError(f"chat template {name}: neither llama3, none nor a readable file: {error}") from None
    if "{system}" not in template or "{user}" not in template:
        raise UserError(f"chat template {name} needs the places {{system}} and {{user}}")
    return template


def render_chat(template: str, system: str, user: str) -> str:
    """Both turns in a chat template, in one pass: braces inside a turn stay as they are."""
    return re.sub(r"\{(system|user)\}", lambda match: system if match[1] == "system" else user, template)
