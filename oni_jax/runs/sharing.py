"""A run as one file for others, and such a file as a run's folder."""

import dataclasses
import glob
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

import oni_jax
from oni_jax.answers.answerer import SERVER, find_answerer
from oni_jax.answers.answerer import shipped as shipped_answers
from oni_jax.host.files import ScratchFolder, read_regular, write_atomically
from oni_jax.host.json_files import MAX_JSON_BYTES
from oni_jax.host.reporting import report
from oni_jax.host.run_files import CHECKPOINTS, last_row
from oni_jax.networks.policy import policy_and_shapes
from oni_jax.ops.checksums import check_finite, leaf_name, named_leaves
from oni_jax.rewards.registry import make_rewards
from oni_jax.runs.checkpointing import Checkpoints, Saved, check_shapes
from oni_jax.runs.experiment import write_settings
from oni_jax.runs.kept import portable, portable_files
from oni_jax.runs.labels import asked
from oni_jax.runs.model_card import model_card
from oni_jax.runs.plan import Plan
from oni_jax.runs.rewards import NoRewardError
from oni_jax.runs.run import Run
from oni_jax.runs.shared_file import (
    ANSWERS,
    CARD,
    KEPT,
    POLICY,
    REWARD,
    REWARD_STATE,
    SCORES,
    SETTINGS,
    Shared,
    as_json,
    find_shared,
    pack,
    read_shared,
    run_name,
)
from oni_jax.settings.config import Config, check_values, config_from_json, config_to_json
from oni_jax.settings.fields import UserError
from oni_jax.settings.json_text import parsed_object
from oni_jax.types import PyTree

MAX_CARD_BYTES = 1 << 16

State = Callable[[Shared, Run], Saved]
"""Makes a checkpoint of a file's arrays; the run has all but that."""


def share(run: Run, env_steps: int | None = None, licence: str = "") -> bytes:
    """Returns the file of a run; equal runs give equal bytes.

    Args:
        run: the run.
        env_steps: steps of the checkpoint; None: the newest that can be read.
        licence: licence of the policy, in a word.

    Raises:
        UserError: there is no such run or checkpoint, or the plugins and prompts that it keeps are damaged.
    """
    pretrained = run.policy(env_steps=env_steps)
    found = pretrained.env_steps
    arrays = {f"{POLICY}/{path}": np.asarray(leaf) for path, leaf in named_leaves(pretrained.params).items()}
    try:
        rewards = run.rewards(found)
        arrays |= {f"{REWARD_STATE}/{path}": np.asarray(leaf) for path, leaf in named_leaves(rewards.state).items()}
        arrays |= {f"{REWARD}/{name}": np.asarray(array) for name, array in rewards.saved.items()}
    except NoRewardError:
        pass
    except UserError as error:
        report(f"{run.folder}: the policy is shared without its rewards: {error}")
    config, name = portable(run.config), run_name(run.name)
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, experiment=name))
    scores, answers, kept = _scores(run.folder), _answers(run.plan), portable_files(run.folder)
    texts = {SETTINGS: config_to_json(config).encode(), SCORES: as_json(scores), ANSWERS: as_json(answers), **kept}
    shared = Shared(name, found, licence, f"oni_jax {oni_jax.__version__}", texts, arrays)
    who = ", ".join(asked(run.plan, short=True).values())
    card = model_card(shared, config, scores, answers, who)
    try:
        return pack(shared._replace(texts={**texts, CARD: card.encode()}))
    except ValueError as error:
        raise UserError(f"{run.folder}: can't be shared: {error}") from None


def write_run(path: str, folder: str, trust_code: bool = False, as_state: State | None = None) -> Run:
    """Writes the run of a file into a folder.

    Args:
        path: path of the file, or the name of a policy of the package.
        folder: it may exist, and holds no run.
        trust_code: plugins of the file may run.
        as_state: makes the checkpoint; None: one to act with, not to resume.

    Raises:
        UserError: the file can't be used, brings code that is not trusted, or the folder can't be written.
    """
    path = find_shared(path)
    shared = read_shared(path)
    config = _settings(path, shared)
    _check_code(path, shared, config, trust_code)
    train_dir, experiment = os.path.split(os.path.abspath(folder))
    try:
        for name, content in shared.texts.items():
            if name.startswith(f"{KEPT}/"):
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                write_atomically(os.path.join(folder, name), content)
    except OSError as error:
        raise UserError(f"{folder} can't be written ({error.strerror}); choose another") from None
    of_here = dataclasses.replace(config.run, train_dir=train_dir, experiment=experiment)
    write_settings(dataclasses.replace(config, run=of_here), folder)
    run = Run(folder)
    try:
        saved = (as_state or to_act)(shared, run)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    checkpoints = Checkpoints(os.path.join(folder, CHECKPOINTS))
    checkpoints.save(shared.env_steps, saved)
    checkpoints.close()
    if not run.steps():
        raise UserError(f"{folder}: no checkpoint can be written; choose another")
    if changed := _changed_answers(shared):
        report(f"{path}: the recorded answers {changed} are others here; its intrinsic rewards may differ")
    return run


@contextmanager
def unpacked(path: str, trust_code: bool = False) -> Iterator[Run]:
    """Yields the run of a file, in a folder that is removed in the end. Raises UserError: as `write_run`."""
    scratch = ScratchFolder()
    try:
        folder = os.path.join(scratch.path, run_name(pathlib.Path(path).stem))
        os.mkdir(folder)
        yield write_run(path, folder, trust_code)
    finally:
        scratch.close()


def to_act(shared: Shared, run: Run) -> Saved:
    """Returns the checkpoint of a run that acts and scores, and is not trained further.

    Raises:
        UserError: the parameters are of another network than the settings say, or damaged.
    """
    plan = run.plan
    _, shapes = policy_and_shapes(plan.config.network, plan.policy_spec)
    state = {"params": _filled(POLICY, shared, shapes)}
    try:
        rewards = make_rewards(plan.config, plan.reward_spec, frozen=True)
    except UserError:  # it reads what is not here: the policy plays without, and says why when it is scored
        return Saved(state, {}, {})
    like = jax.eval_shape(rewards.init, jax.random.key(0))
    if jax.tree.leaves(like) and not shared.below(REWARD_STATE):  # shared without
        return Saved(state, {}, {})
    state["reward_state"] = _filled(REWARD_STATE, shared, like)
    return Saved(state, shared.below(REWARD), {})


def _filled(folder: str, shared: Shared, like: PyTree) -> PyTree:
    """Returns a tree with the arrays of a folder as its leaves. Raises UserError: they are of another tree."""
    arrays = shared.below(folder)
    try:
        check_shapes(arrays, like, "in the file")
        for name, leaf in named_leaves(like).items():
            if not np.can_cast(arrays[name].dtype, leaf.dtype, "same_kind"):
                raise ValueError(f"{name} is of type {arrays[name].dtype}, and {leaf.dtype} here")
        tree = jax.tree_util.tree_map_with_path(lambda path, x: arrays[leaf_name(path)].astype(x.dtype), like)
        check_finite(tree)
        return tree
    except ValueError as error:
        raise UserError(f"its {folder} does not fit its settings: {error}") from None


def _settings(path: str, shared: Shared) -> Config:
    """Returns a file's settings, for this machine. Raises UserError: they are none of a run."""
    try:
        config = config_from_json(shared.texts[SETTINGS])
        check_values(config)
        return portable(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _check_code(path: str, shared: Shared, config: Config, is_trusted: bool) -> None:
    """Raises UserError: the file brings or names code that would run."""
    brought, named = shared.code(), config.env.plugin
    if is_trusted or not (brought or named):
        return
    what = f"brings code ({', '.join(brought)})" if brought else f"names a plugin ({named})"
    raise UserError(f"{path}: {what}, which would run here: read it, as by unzip -p, then add --trust_code")


def _scores(folder: str) -> dict[str, Any]:
    """Returns a run's last row of metrics, and its evaluations without their single episodes."""
    row = {name: x for name, x in last_row(folder).items() if isinstance(x, int | float) and math.isfinite(x)}
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "evaluation*.json"))):
        try:
            tree = parsed_object(read_regular(path, MAX_JSON_BYTES))
            for each in (*tree["evaluations"], *([tree["other"]] if "other" in tree else [])):
                each.pop("episodes", None)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            report(f"{path}: is left out: it can't be read, or is none of launch.evaluate --json ({error})")
            continue
        found[os.path.basename(path)] = tree
    return {"last_row": row, "evaluations": found}


def _answers(plan: Plan) -> list[dict[str, Any]]:
    """Returns who answers each of a run's questions: models, prompts, and the source of recorded answers."""
    found = []
    for settings, kind in plan.questions:
        file, path, asks = find_answerer(settings, plan.language, kind)
        about = {"kind": kind, "asked": asks or "nobody", "prompt_digest": plan.prompt(settings, kind).digest}
        about |= {"model": settings.llm_model if asks == SERVER else "", "goal_key": settings.goal_key}
        if file:
            about |= {"file": os.path.basename(path), "sha256": _digest(path), "header": file.header._asdict()}
            card = pathlib.Path(path.removesuffix(".gz").removesuffix(".jsonl") + ".md")
            if card.is_file() and card.stat().st_size <= MAX_CARD_BYTES:
                about["card"] = card.read_text(encoding="utf-8", errors="replace")
        found.append(about)
    return found


def _changed_answers(shared: Shared) -> str:
    """Returns the names of the package's files of answers that differ from those of the training."""
    try:
        before = {x["file"]: x["sha256"] for x in json.loads(shared.texts[ANSWERS]) if "file" in x}
        return ", ".join(x.name for x in shipped_answers() if before.get(x.name, _digest(x)) != _digest(x))
    except (ValueError, TypeError, LookupError, RecursionError):
        return "that it names"


def _digest(path: str | pathlib.Path) -> str:
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
