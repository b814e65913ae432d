"""Pairs of segments that an LLM compares, for a potential to be trained on. Source: BK-Pref.

The folder holds `segments.npz`, both segments of each pair one after the other, `settings.json`, and the labels in
`preference/labels.npy`, as `preferences.preference_file` describes them.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from oni_jax.annotation.prompts import load_prompt
from oni_jax.answers.answerer import answered_by, open_questions
from oni_jax.envs.registry import env_spec
from oni_jax.host.files import write_atomically
from oni_jax.host.held_folders import HeldFolder, held_folder
from oni_jax.host.json_files import other_settings
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import AnnotateSegments, CompareConfig
from oni_jax.offline.pair_annotation import AnnotationLog, label_pairs
from oni_jax.offline.play import given_episodes
from oni_jax.offline.preference_file import PreferenceFile
from oni_jax.offline.segment_episodes import Segment, SegmentSampler, read_episodes, write_episodes
from oni_jax.rewards.bk.segment_captions import segment_caption
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, caption_bytes
from oni_jax.settings.json_text import sealed
from oni_jax.types import Item

NUM_EPISODES = 64
SEGMENTS, SETTINGS, LABELS = "segments.npz", "settings.json", "labels"
FLUSHING_FREQ = 100  # labels between flushes of their file


def annotate_segments(config: AnnotateSegments, stop: StopRequest) -> int:
    """Draws pairs, and labels those that have no label yet. Returns the exit code: 0, or 130 when interrupted.

    Raises:
        UserError: unusable settings, episodes or folder, or a server that refuses.
    """
    section = config.compare
    env_spec(config.env)
    language = Plan(Config(config.env)).language
    prompt = load_prompt(config.annotation, language, "segments")
    settings = dataclasses.asdict(section) | {
        "prompt": prompt.digest,
        "llm_model": answered_by(config.annotation, language, "segments"),
    }
    with held_folder(section.reward_dir, "reward_dir", stop) as folder:
        segments = _open_folder(config, settings, stop)
        return 130 if segments is None else _label(config, segments, settings, folder, stop)


def _label(
    config: AnnotateSegments,
    segments: Sequence[Segment],
    settings: Mapping[str, Any],
    folder: HeldFolder,
    stop: StopRequest,
) -> int:
    """Labels the pairs. Returns the exit code."""
    section, language = config.compare, Plan(Config(config.env)).language
    actions = language.actions if language else ()

    def describe(rows: np.ndarray) -> Iterable[Item]:
        pairs = (segments[2 * row : 2 * row + 2] for row in rows)
        return [tuple(caption_of(segment, actions) for segment in pair) for pair in pairs]

    with (
        PreferenceFile(section.reward_dir, LABELS, section.num_pairs, range(section.num_pairs)) as file,
        contextlib.ExitStack() as stack,  # lost answers are saved while the file is open
    ):

        def save(elsewhere: str) -> None:
            _write_pairs(elsewhere, segments, settings)
            file.save_in(elsewhere)

        stack.enter_context(folder.saving(save))
        progress = AnnotationLog(file, section.num_pairs)
        (question,) = open_questions([(config.annotation, "segments")], language, stack)
        asyncio.run(label_pairs(question, describe, file, FLUSHING_FREQ, progress, stop))
        progress.print(stop)
    return 130 if stop else 0


def caption_of(segment: Segment, actions: Sequence[str]) -> bytes:
    """Returns the text of a segment, with its actions in words."""
    return caption_bytes(segment_caption(*segment.in_words(actions)))


def draw_pairs(config: CompareConfig, episodes: Sequence[Segment]) -> list[Segment]:
    """Draws pairs of segments; returns both of each, one after the other."""
    sampler = SegmentSampler(episodes, config.segment_length, config.seed)
    return [sampler.draw() for _ in range(2 * config.num_pairs)]


def _write_pairs(folder: str, segments: Sequence[Segment], settings: Mapping[str, Any]) -> None:
    write_episodes(os.path.join(folder, SEGMENTS), segments)
    write_atomically(os.path.join(folder, SETTINGS), json.dumps(sealed(settings), indent=1).encode())


def _open_folder(config: AnnotateSegments, settings: dict, stop: StopRequest) -> list[Segment] | None:
    """Makes the folder, or checks that its labels have these settings. Returns the segments; None: a stop request."""
    section, folder = config.compare, config.compare.reward_dir
    del settings["reward_dir"]
    path = os.path.join(folder, SETTINGS)
    try:
        if os.path.exists(path):
            if changed := other_settings(path, settings):
                raise UserError(
                    f"--reward_dir {folder}: its labels have another {', '.join(changed)}; choose another folder"
                )
            return read_episodes(os.path.join(folder, SEGMENTS))
        episodes = given_episodes(section.segments, config.env, NUM_EPISODES, section.seed, stop)
        if stop:
            return None
        _write_pairs(folder, draw_pairs(section, episodes), settings)
    except (OSError, ValueError) as error:
        raise UserError(f"--reward_dir {folder}: can't be read or written ({error})") from None
    return read_episodes(os.path.join(folder, SEGMENTS))
