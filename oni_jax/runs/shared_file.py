"""The file of a shared policy: a zip of JSON, texts and NumPy's arrays, which others read without this package.

    manifest.json               format, name, env_steps, licence, version of the writer, and the SHA-256 of each entry
    card.md                     the model card
    config.json                 settings of the run
    scores.json, answers.json   last row of metrics, evaluations; who answered the run's questions
    policy/….npy                parameters of the policy, by their path
    reward_state/….npy, reward/….npy   the rewards' parameters and state
    trained_with/…              plugins and prompts, as the run keeps them

Nothing is compressed: equal contents give equal bytes, and a file unpacks to no more than its size. Its comment,
the last 64 bytes, is the SHA-256 of all bytes before it. A file is untrusted: it is read whole and checked before any
of it is used, and nothing in it is executed.
"""

import hashlib
import io
import json
import os
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from oni_jax.host.files import open_regular
from oni_jax.host.npz import from_npy, to_npy
from oni_jax.settings.fields import UserError, nearest, printable

FORMAT = "oni_jax policy"
VERSION = 1
MANIFEST, CARD, SETTINGS, SCORES, ANSWERS = "manifest.json", "card.md", "config.json", "scores.json", "answers.json"
TEXTS = (CARD, SETTINGS, SCORES, ANSWERS)
POLICY, REWARD_STATE, REWARD = "policy", "reward_state", "reward"
ARRAYS = (POLICY, REWARD_STATE, REWARD)  # folders of arrays
KEPT = "trained_with"  # folder of plugins and prompts
SUFFIX = ".npy"
MAX_FILE_BYTES, MAX_TEXT_BYTES = 1 << 30, 1 << 24
MAX_ENTRIES, MAX_NAME_CHARS = 10_000, 200
MAX_STEPS = 1 << 53
SUM_CHARS = 64
SHIPPED = pathlib.Path(__file__).with_name("policies")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")  # name of a run
_SEGMENT = re.compile(r"[\x21-\x7e ]+")  # part of a path, without what the next two name


class Shared(NamedTuple):
    name: str  # name of the run
    env_steps: int
    licence: str  # as its maker named it; empty: not at all
    written_by: str  # version of this package
    texts: Mapping[str, bytes]  # TEXTS, and files below KEPT, by name
    arrays: Mapping[str, np.ndarray]  # name without SUFFIX -> array

    def below(self, folder: str) -> dict[str, np.ndarray]:
        """Returns the arrays of a folder, by their path in it."""
        prefix = f"{folder}/"
        return {name.removeprefix(prefix): x for name, x in self.arrays.items() if name.startswith(prefix)}

    def code(self) -> list[str]:
        """Returns the names of the files with code."""
        return [name for name in self.texts if name.startswith(f"{KEPT}/plugins/")]


def shipped() -> dict[str, str]:
    """Returns name -> path of the policies that come with the package."""
    return {path.stem: str(path) for path in sorted(SHIPPED.glob("*.zip"))}


def find_shared(name: str) -> str:
    """Returns the path of a file: what is there, else a policy of the package. Raises UserError: there is neither."""
    known = shipped()
    if not os.path.exists(name) and name not in known:
        listed = f"; the package has {', '.join(known)}" if known else ""
        raise UserError(f"{name}: there is no such file of launch.export{listed}{nearest(name, known)}")
    return name if os.path.exists(name) else known[name]


def run_name(text: str) -> str:
    """Returns a name for a run that is a folder's name everywhere."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", text).lstrip(".-")[:MAX_NAME_CHARS] or "policy"


def pack(shared: Shared) -> bytes:
    """Returns the bytes of a file. Raises ValueError: a name, or an array of objects, can't be an entry."""
    entries = {**shared.texts, **{f"{name}{SUFFIX}": to_npy(x) for name, x in shared.arrays.items()}}
    for name in entries:
        _check_name(name)
    about = {"name": shared.name, "env_steps": shared.env_steps, "licence": shared.licence}
    sums = {name: _sum(content) for name, content in entries.items()}
    manifest = {"format": FORMAT, "version": VERSION, "written_by": shared.written_by, **about, "sha256": sums}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({**entries, MANIFEST: as_json(manifest)}.items()):
            info = zipfile.ZipInfo(name)  # the date is 1980's, not today's
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, content)
        archive.comment = b"0" * SUM_CHARS
    data = file.getvalue()[:-SUM_CHARS]
    return data + _sum(data).encode()


def read_shared(path: str) -> Shared:
    """Reads and checks a file.

    Raises:
        UserError: it can't be read, is damaged or cut off, or no such file, or of a newer version.
    """
    try:
        with open_regular(os.path.realpath(path)) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise UserError(f"{path}: is larger than {MAX_FILE_BYTES:,} bytes, which no policy here is")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror}); name a file of launch.export") from None
    if not data.startswith(b"PK\3\4"):
        raise UserError(f"{path}: is no file of launch.export; name one")
    if data[-SUM_CHARS:] != _sum(data[:-SUM_CHARS]).encode():
        raise UserError(
            f"{path}: is damaged or cut off, or no file of launch.export (its checksum is another); get it again"
        )
    try:
        return _content(_entries(data))
    except Exception as error:  # zip, JSON and NumPy raise many types for hostile files
        reason = printable(" ".join(str(error).split())[:200]) or type(error).__name__
        raise UserError(f"{path}: is no file of launch.export that can be used: {reason}") from None


def as_json(tree: Any) -> bytes:
    """Returns JSON of which equal trees have equal bytes."""
    return (json.dumps(tree, indent=1, sort_keys=True) + "\n").encode()


def _entries(data: bytes) -> dict[str, bytes]:
    """Returns the contents by name. Raises ValueError, BadZipFile."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        if len(infos) > MAX_ENTRIES or sum(info.file_size for info in infos) > len(data):
            raise ValueError("it holds more than its size allows")
        if len({*names}) < len(names):
            raise ValueError("it holds a name twice")
        for info in infos:
            _check_name(info.filename)
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits or info.file_size != info.compress_size:
                raise ValueError(f"{info.filename} is compressed or encrypted")
            if not info.filename.endswith(SUFFIX) and info.file_size > MAX_TEXT_BYTES:
                raise ValueError(f"{info.filename} is larger than {MAX_TEXT_BYTES:,} bytes")
        return {name: archive.read(name) for name in names}


def _check_name(name: str) -> None:
    """Raises ValueError: a name is none of an entry's."""
    folder, _, rest = name.partition("/")
    parts = rest.split("/")
    is_path = all(_SEGMENT.fullmatch(part) and part not in (".", "..") and "\\" not in part for part in parts)
    is_array = folder in ARRAYS and name.endswith(SUFFIX)
    is_known = name in (MANIFEST, *TEXTS) or (is_path and (is_array or folder == KEPT))
    if not is_known or len(name) > MAX_NAME_CHARS:
        raise ValueError(f"it holds {name!a:.80}, which belongs to no policy")


def _content(entries: dict[str, bytes]) -> Shared:
    """Raises ValueError: something is missing, or not what it says."""
    manifest = _manifest(entries.pop(MANIFEST, b"null"))
    if (sums := manifest.get("sha256")) != {name: _sum(content) for name, content in entries.items()}:
        known = sums if isinstance(sums, dict) else {}
        wrong = [name for name in (*entries, *known) if known.get(name) != _sum(entries.get(name, b""))]
        raise ValueError(f"{(*wrong, MANIFEST)[0]!a:.80} is damaged, missing or too much")
    if missing := {*TEXTS} - entries.keys():
        raise ValueError(f"{min(missing)} is missing")
    name, licence, written_by = (_words(manifest, key) for key in ("name", "licence", "written_by"))
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!a:.80} is no name of a run")
    env_steps = manifest.get("env_steps")
    if type(env_steps) is not int or not 0 <= env_steps < MAX_STEPS:
        raise ValueError(f"its env_steps are {env_steps!r:.40}")
    is_array = {name: name.partition("/")[0] in ARRAYS for name in entries}
    arrays = {x.removesuffix(SUFFIX): from_npy(x, content) for x, content in entries.items() if is_array[x]}
    texts = {x: content for x, content in entries.items() if not is_array[x]}
    return Shared(name, env_steps, licence, written_by, texts, arrays)


def _manifest(text: bytes) -> dict[str, Any]:
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"it has no {MANIFEST} that names the format {FORMAT!r}")
    version = manifest.get("version")
    if type(version) is not int or version != VERSION:
        is_newer = type(version) is int and version > VERSION
        raise ValueError(f"it is of version {version!r:.20}, and this is {VERSION}{'; update oni_jax' * is_newer}")
    return manifest


def _words(manifest: Mapping[str, Any], name: str) -> str:
    text = manifest.get(name)
    if not isinstance(text, str) or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise ValueError(f"{MANIFEST}: {name!r} is no short text of one line")
    return text


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
