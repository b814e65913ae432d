"""Conversations with an LLM that go on after their last answer.

The folder holds `answers.jsonl`, all answers so far, and `settings.json`, with a hash of the episodes. What is asked
depends on the settings and the answers alone, so that a conversation that was interrupted is held again, with the
answers that are there.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from oni_jax.annotation.asker import Asked, Asker, Policy, Stopped, one_by_one, unless_stopped
from oni_jax.annotation.client import Client, NoServer, make_client
from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.prompts import Prompt, Turn, load_prompt
from oni_jax.annotation.service import Question
from oni_jax.answers.answerer import answered_by, open_questions
from oni_jax.envs.registry import env_spec
from oni_jax.host.files import read_regular, write_atomically
from oni_jax.host.held_folders import held_folder
from oni_jax.host.json_files import MAX_JSON_BYTES, other_settings, read_json
from oni_jax.host.reporting import report
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import WriteGoals, WritePotential
from oni_jax.offline.play import given_episodes
from oni_jax.offline.segment_episodes import Segment, SegmentSampler
from oni_jax.runs.plan import Plan
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, settings
from oni_jax.settings.json_text import SUM, parsed, parsed_object, sealed, sum_of
from oni_jax.types import Item

NUM_EPISODES = 32  # episodes of random actions, where none were recorded
CHARS_PER_TOKEN, TOKENS_PER_TURN = 4, 3
ANSWERS, SETTINGS = "answers.jsonl", "settings.json"
TEXT, AFTER = "answer", "after"  # names in a line of the former; the latter: sum of all before it
_HINT = "remove it and those below, which are asked for again"

Ask = Callable[..., Awaitable[str]]  # (turns, item that they ask about; (): none) -> answer


class UnansweredError(Exception):
    """Nobody is asked, and no recorded answer is there."""


class Conversation(Protocol):
    """Rounds of questions and answers about segments."""

    async def hold(self, ask: Ask) -> None:
        """Holds it from its beginning. Raises UserError: nothing came of it."""
        ...


# (prompt, segments, actions in words) -> conversation
Make = Callable[[Prompt, SegmentSampler, Sequence[str]], Conversation]


def converse(config: WritePotential | WriteGoals, kind: str, result: str, make: Make, stop: StopRequest) -> bool:
    """Holds a conversation about segments, or the rest of it. Returns False when it was interrupted.

    Args:
        config: settings of the program.
        kind: kind of query; names the prompt.
        result: name of the file that it writes.
        make: makes the conversation.
        stop: checked while an answer is waited for.

    Raises:
        UserError: unusable settings or folder, a server that refuses, or nothing came of it.
    """
    section = config.write
    env_spec(config.env)
    language = Plan(Config(config.env)).language
    prompt = load_prompt(config.annotation, language, kind)
    settings = _settings(config, prompt, answered_by(config.annotation, language, kind))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(held_folder(section.reward_dir, "reward_dir", stop))
        answers = _open_folder(section.reward_dir, settings, result)
        episodes = given_episodes(section.segments, config.env, NUM_EPISODES, section.seed, stop)
        if stop:
            return False
        sampler = SegmentSampler(episodes, section.segment_length, section.seed)
        settings |= {"segments_content": _digest(episodes)}
        _keep_settings(section.reward_dir, settings, has_answers=bool(answers))
        stack.enter_context(folder.saving(lambda elsewhere: _write_all(elsewhere, settings, answers)))
        (question,) = open_questions([(config.annotation, kind)], language, stack)
        conversation = make(prompt, sampler, language.actions if language else ())
        try:
            _hold(conversation, section.reward_dir, answers, question, stop)
        except Stopped:
            report(f"{stop.reason}: {section.reward_dir} keeps the answers so far; the same command goes on")
            return False
    return True


def _settings(config: WritePotential | WriteGoals, prompt: Prompt, model: str) -> dict[str, Any]:
    """Returns all that a conversation depends on."""
    found = {field.name: value for part in (config.write, config.env) for field, value in settings(part)}
    found |= {"prompt": prompt.digest, "llm_model": model}
    found = {name: value for name, value in found.items() if name not in ("reward_dir", "num_rounds")}
    return json.loads(json.dumps(found))  # as they are read


def _digest(episodes: Sequence[Segment]) -> str:
    """Returns a hash of what episodes say."""
    found = hashlib.sha256()
    for episode in episodes:
        found.update(b"\0".join(episode.captions) + episode.actions.astype(np.int32).tobytes())
    return found.hexdigest()


def _open_folder(folder: str, settings: Mapping[str, Any], result: str) -> list[str]:
    """Makes a conversation's folder, or checks that its conversation has these settings. Returns the answers so far.

    Args:
        folder: the path.
        settings: values that the conversation depends on, besides the segments' content.
        result: name of the file that it writes.

    Raises:
        UserError: the folder holds something else, or can't be read or written.
    """
    path = os.path.join(folder, ANSWERS)
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise UserError(f"--reward_dir {folder}: can't be written; choose another folder")
        texts = []
        if os.path.exists(path):
            content = read_regular(path, MAX_JSON_BYTES, follows_links=True)
            texts = _texts(content, _sum_before(folder))
    except (OSError, ValueError) as error:
        raise UserError(f"--reward_dir {folder}: can't be read or written ({error})") from None
    if texts:
        _keep_settings(folder, settings, has_answers=True)
        report(f"{len(texts)} answers are there already")
    elif os.path.exists(os.path.join(folder, result)):
        raise UserError(f"--reward_dir {folder}: holds {result} without its conversation; choose another")
    return texts


def _texts(content: bytes, before: int) -> list[str]:
    """Returns the answers of a file. Raises ValueError: a line is damaged, or does not follow those before it."""
    texts = []
    for number, line in enumerate(content.splitlines(), 1):
        text, after = _text(line, number)
        if after not in (None, before):  # None: an earlier version's
            raise ValueError(f"line {number} of {ANSWERS}: does not follow what was asked before; {_HINT}")
        texts.append(text)
        before = _sum_after(before, text)
    return texts


def _text(line: bytes, number: int) -> tuple[str, Any]:
    """Returns the answer of a line, and the sum of those that it follows. Raises ValueError: it is damaged."""
    try:
        found = parsed(line)
        about = {TEXT: found} if isinstance(found, str) else parsed_object(line)  # the former: an earlier version's
        if not isinstance(text := about.get(TEXT), str):
            raise ValueError("it holds no text")
        return text, about.get(AFTER)
    except ValueError as error:
        raise ValueError(f"line {number} of {ANSWERS}: {error}; {_HINT}") from None


def _keep_settings(folder: str, settings: Mapping[str, Any], has_answers: bool) -> None:
    """Writes a conversation's settings before its first answer. Raises UserError: it has others, or they can't be."""
    path = os.path.join(folder, SETTINGS)
    try:
        if not has_answers:
            write_atomically(path, json.dumps(sealed(settings), indent=1).encode())
        elif changed := other_settings(path, settings, may_lack=True):  # an older version's
            raise UserError(
                f"--reward_dir {folder}: its conversation had another {', '.join(changed)}; choose another folder"
            )
    except (OSError, ValueError) as error:
        raise UserError(f"--reward_dir {folder}: can't be read or written ({error})") from None


def _write_answers(folder: str, answers: Sequence[str], before: int) -> None:
    lines = []
    for answer in answers:
        lines.append(json.dumps(sealed({TEXT: answer, AFTER: before})) + "\n")
        before = _sum_after(before, answer)
    write_atomically(os.path.join(folder, ANSWERS), "".join(lines).encode())


def _sum_before(folder: str) -> int:
    """Returns the checksum of a conversation's settings, which its first answer follows; 0: an earlier version's."""
    found = read_json(os.path.join(folder, SETTINGS))
    return found.get(SUM, 0) if isinstance(found, dict) else 0


def _sum_after(before: int, answer: str) -> int:
    return sum_of({TEXT: answer, AFTER: before})


def _write_all(folder: str, settings: Mapping[str, Any], answers: Sequence[str]) -> None:
    """Writes a conversation to another folder, where it can go on. Raises OSError, UserError."""
    _keep_settings(folder, settings, has_answers=False)
    _write_answers(folder, answers, _sum_before(folder))


def _hold(
    conversation: Conversation,
    folder: str,
    answers: list[str],
    question: Question,
    stop: StopRequest,
) -> None:
    """Gives a conversation the answers that are there, and then the server's, which are written down."""
    known, before = iter(list(answers)), _sum_before(folder)

    async def run() -> None:
        async with make_client(question.config, question.prompt) as client:
            asker = None if isinstance(client, NoServer) else _make_asker(client, question.config)

            async def ask(turns: Sequence[Turn], item: Item = ()) -> str:
                recorded = question.recorded.answers.get(item)
                if recorded is None and asker is None:
                    raise UnansweredError
                if (text := next(known, None)) is not None:
                    return text
                if recorded is not None:
                    text = question.prompt.kind.as_text(recorded)
                else:
                    assert asker
                    text = await _ask(asker, turns, question.config, stop)
                answers.append(text)
                _write_answers(folder, answers, before)
                return text

            await conversation.hold(ask)

    try:
        asyncio.run(run())
    except OSError as error:
        raise UserError(f"--reward_dir {folder}: can't be written ({error}); the same command goes on") from None


def _make_asker(client: Client, config: AnnotationConfig) -> Asker:
    """Makes what holds a conversation. It prints why it asks again."""
    printed = ""

    def warn(error: RequestError) -> None:
        nonlocal printed
        if error.name != printed or not error.server_at_fault:
            report(f"warning: no answer, trying again ({error})")
        printed = error.name

    return Asker(config, client, one_by_one(client.complete), warn=warn)


async def _ask(asker: Asker, turns: Sequence[Turn], config: AnnotationConfig, stop: StopRequest) -> str:
    """Returns an answer's text. Waits for a server that is away or overloaded; other failures are retried a few times.

    Raises:
        Stopped: a stop request came first.
        UserError: the server refuses, such as the key or the model, or has failed too often.
    """
    asked = Asked(turns)
    await unless_stopped(asker.ask([asked], Policy(config.llm_max_retries, math.inf, math.inf)), stop)
    if asked.error:
        raise UserError(f"the LLM server gives no answer ({asked.error})")
    return asked.replies[-1].text


def drop_oldest(turns: list[Turn], num_kept: int, max_tokens: int, num_last: int = 1) -> None:
    """Drops the oldest rounds, two turns each, while a conversation is too long; its first and last turns stay.

    Args:
        turns: turns of the conversation; changed in place.
        num_kept: turns that stay at the beginning.
        max_tokens: about; 0: it is never cut.
        num_last: turns that stay at the end.
    """
    while max_tokens and len(turns) >= num_kept + 2 + num_last and num_tokens(turns) > max_tokens:
        del turns[num_kept : num_kept + 2]


def num_tokens(turns: Sequence[Turn]) -> int:
    """Returns about how many tokens a conversation has."""
    return sum(len(text) // CHARS_PER_TOKEN + TOKENS_PER_TURN for _, text in turns)
