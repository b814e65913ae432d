"""The plugins and prompt files that a run was trained with, of which it keeps copies and hashes in its folder.

Whoever reads the run later may be in another folder, and the files may have changed, or be gone.
"""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from oni_jax.host.files import read_regular, write_atomically
from oni_jax.host.plugins import OURS, module_files, plugin_names, root_of
from oni_jax.host.reporting import report_once
from oni_jax.runs.plan import Plan
from oni_jax.settings.annotation import JUDGE, RECORDED
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, settings, with_values
from oni_jax.settings.json_text import parsed_object, sealed

FOLDER, INDEX = "trained_with", "files.json"
PLUGINS, PROMPTS = "plugins", "prompts"
# Settings that name a file or a folder, values of them that name none, and settings of a machine or a person.
PATHS = ("reward_dir", "word_vectors", "answers", "label_store", "llm_chat_template", "init_from", "guide")
WORDS = ("", RECORDED, JUDGE, "llama3", "none")
OF_A_PLACE = ("train_dir", "label_store", "wandb", "wandb_entity", "wandb_proj")
OF_A_PLACE += ("coordinator_address", "num_processes", "process_id")
MAX_FILE_BYTES = 1 << 26

Section = TypeVar("Section")


class Kept(NamedTuple):
    """The files of a run, by hashes."""

    started_in: str = ""  # the current folder
    plugins: Mapping[str, Mapping[str, str]] = {}  # name -> path under its root -> hash
    prompts: Mapping[str, str] = {}  # path, as it was given -> hash


def keep_files(plan: Plan, folder: str) -> list[str]:
    """Keeps copies of a run's plugins and prompt files in its folder, and the folder in which it was started.

    Returns:
        The names of those that differ from the run's last start.

    Raises:
        UserError: they can't be read or written.
    """
    before, here = _read_index(folder), os.path.join(folder, FOLDER)
    plugins, prompts = dict[str, dict[str, str]](), dict[str, str]()
    try:
        for name in plugin_names(plan.config.env.plugin):
            root = root_of(name)
            texts = {path: _read(os.path.join(root, path)) for path in _files(plan, name, root)}
            for path, text in texts.items():
                _write(os.path.join(here, PLUGINS, path), text)
            plugins[name] = {path: _digest(text) for path, text in texts.items()}
        for path in {term.annotation.prompt_file for term in plan.config.terms()} - {""}:
            prompts[path] = _digest(text := _read(path))
            _write(_prompt_copy(folder, path, prompts[path]), text)
        now = Kept(os.getcwd(), plugins, prompts)
        _write(os.path.join(here, INDEX), json.dumps(sealed(now._asdict()), indent=2).encode())
    except OSError as error:
        raise UserError(
            f"{error.filename or here}: can't be kept in {here} ({error.strerror}); mend or move away the former"
        ) from None
    pairs = [(before.prompts, prompts), *((before.plugins.get(name, {}), files) for name, files in plugins.items())]
    differing = [path for old, new in pairs for path, digest in new.items() if old.get(path, digest) != digest]
    return [*dict.fromkeys(differing)]  # plugins may share files


def as_trained(folder: str, config: Config) -> Config:
    """Returns a run's settings with paths that hold in any folder; its plugins become those that it was trained with.

    A plugin is the user's file as long as it is unchanged, else the run's copy.
    """
    kept = _read_index(folder)
    for name, files in kept.plugins.items():
        copies = os.path.join(os.path.abspath(folder), FOLDER, PLUGINS)
        if name in sys.modules or _holds(root_of(plugin_names(name)[0]), files) or not _holds(copies, files):
            continue
        report_once(f"--plugin {name}: is not what it was; the copy in {copies} is used")
        sys.path.insert(0, copies)

    def located(path: str) -> str:
        there = os.path.join(kept.started_in, path)
        return there if path not in WORDS and os.path.exists(there) else path

    def prompt_file(path: str) -> str:
        digest = kept.prompts.get(path, "")
        copy, there = _prompt_copy(folder, path, digest), located(path)
        if not digest or _is(copy, digest):
            return copy if digest else there
        if os.path.lexists(copy):
            report_once(f"{copy}: is damaged; {there} is read in its place")
        return there

    by = {**dict.fromkeys(PATHS, located), "prompt_file": prompt_file}
    pairs = ((_replaced(reward, by), _replaced(annotation, by)) for reward, annotation in config.others)
    parts = {name: _replaced(getattr(config, name), by) for name in ("reward", "annotation", "pretrained")}
    return dataclasses.replace(config, others=tuple(pairs), **parts)


def portable(config: Config) -> Config:
    """Returns settings for another machine: no accounts and folders, files by their names, servers of that machine."""
    others = tuple((_portable(reward), _portable(annotation)) for reward, annotation in config.others)
    return dataclasses.replace(_portable(config), others=others)


def _portable(section: Section) -> Section:
    values: dict[str, Any] = {}
    for field, value in settings(section):
        if field.name in OF_A_PLACE:
            values[field.name] = field.default
        elif field.name in (*PATHS, "prompt_file") and value not in WORDS:
            values[field.name] = os.path.basename(value.rstrip("/"))
        elif field.name == "llm_server_addr" and value:
            values[field.name] = "localhost"
    return with_values(section, values)


def portable_files(folder: str) -> dict[str, bytes]:
    """Returns the copies that a run keeps, by their path in its folder, with an index that names no path of here.

    Raises:
        UserError: one is missing, or not what it was.
    """
    kept = _read_index(folder)
    found = {os.path.join(FOLDER, PLUGINS, path): x for files in kept.plugins.values() for path, x in files.items()}
    found |= {
        os.path.relpath(_prompt_copy(folder, path, x), os.path.abspath(folder)): x for path, x in kept.prompts.items()
    }
    if not _holds(folder, found):
        raise UserError(f"{os.path.join(folder, FOLDER)}: a file is missing or was changed; train the run again")
    prompts = {os.path.basename(path): digest for path, digest in kept.prompts.items()}
    index = json.dumps(Kept("", kept.plugins, prompts)._asdict(), indent=2, sort_keys=True)
    return {**{path: _read(os.path.join(folder, path)) for path in found}, os.path.join(FOLDER, INDEX): index.encode()}


def _replaced(section: Section, by: Mapping[str, Callable[[str], str]]) -> Section:
    fields = {field.name for field in dataclasses.fields(section)} & by.keys()  # type: ignore[arg-type]
    return dataclasses.replace(section, **{name: by[name](getattr(section, name)) for name in fields})  # type: ignore


def _files(plan: Plan, plugin: str, root: str) -> list[str]:
    """Returns the files of a plugin: its modules, and the prompts and rules of the environment that it brings."""
    language = plan.language
    modules = [plugin, *([language.judge_rules] if language and language.judge_rules else [])]
    prompts = os.path.abspath(language.prompts) if language else ""
    found = module_files(modules)
    if root and prompts.startswith(f"{root}{os.sep}") and OURS not in os.path.relpath(prompts, root).split(os.sep):
        there = os.listdir(prompts) if os.path.isdir(prompts) else []  # a reward may bring its prompt itself
        names = sorted(name for name in there if name.endswith(".json"))
        found += [os.path.relpath(os.path.join(prompts, name), root) for name in names]
    return found


def _holds(root: str, files: Mapping[str, str]) -> bool:
    """Returns whether a folder holds these files, of these hashes."""
    try:
        return bool(root) and all(_digest(_read(os.path.join(root, path))) == x for path, x in files.items())
    except OSError:
        return False


def _is(path: str, digest: str) -> bool:
    try:
        return _digest(_read(path)) == digest
    except OSError:
        return False


def _read_index(folder: str) -> Kept:
    """Reads what a run keeps: nothing, if it is of an older version, or the file is damaged, which a line says."""
    path = os.path.join(folder, FOLDER, INDEX)
    if not os.path.lexists(path):
        return Kept()
    try:
        found = Kept(**parsed_object(_read(path)))
        plugins = {name: {str(path): str(x) for path, x in files.items()} for name, files in found.plugins.items()}
        return Kept(str(found.started_in), plugins, {path: str(x) for path, x in found.prompts.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        report_once(f"warning: {path} can't be read ({error}): plugins and prompts are those of today")
        return Kept()


def _prompt_copy(folder: str, path: str, digest: str) -> str:
    return os.path.join(os.path.abspath(folder), FOLDER, PROMPTS, f"{digest[:8]}_{os.path.basename(path)}")


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _read(path: str) -> bytes:
    return read_regular(path, MAX_FILE_BYTES, follows_links=True)


def _write(path: str, text: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, text)
