"""NLE's source distribution: fetched from the package index, unpacked, edited."""

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

VERSION = "1.3.0"
SHA256 = "598871072652861541a1c1e56caf51851f311b062d7830d9ebf452119e53205d"
EDITS = pathlib.Path(__file__).parent / "ngpl" / "edits.toml"
# pip asks a source distribution's build system for the package's name before it hands out the file. NLE's build system
# is another download, so pip is given this one.
NO_BUILD_SYSTEM = f"""
import pathlib

def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "nle-{VERSION}.dist-info"
    pathlib.Path(folder, name).mkdir()
    pathlib.Path(folder, name, "METADATA").write_text("Metadata-Version: 2.1\\nName: nle\\nVersion: {VERSION}\\n")
    return name

def build_wheel(*arguments):
    raise NotImplementedError
"""


class BuildError(Exception):
    """The engine can't be built; the text says why, in one line."""


def fetch(folder: pathlib.Path) -> pathlib.Path:
    """Fetches the source by pip, from the index that it is set to, checks its hash, and unpacks it.

    Returns the source's folder. Raises BuildError: there is no network, index or pip.
    """
    build_system = folder / "build_system" / "scikit_build_core"
    build_system.mkdir(parents=True)
    (build_system / "__init__.py").touch()
    (build_system / "build.py").write_text(NO_BUILD_SYSTEM)
    wanted = folder / "requirement.txt"
    wanted.write_text(f"nle=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "nle", "--no-build-isolation", "--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(build_system.parent)}, capture_output=True, text=True
    )
    archive = folder / f"nle-{VERSION}.tar.gz"
    if done.returncode or not archive.exists():
        raise BuildError(f"NLE's source can't be fetched: {last_line(done.stderr) or 'pip gave no file'}")
    shutil.unpack_archive(archive, folder)  # whose hash pip has checked
    return folder / f"nle-{VERSION}"


def last_line(text: str) -> str:
    """Returns the last line that is not blank, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def edit(source: pathlib.Path, edits: pathlib.Path = EDITS) -> None:
    """Makes the edits in the source. Raises BuildError: a text to replace is not there exactly once."""
    for change in tomllib.loads(edits.read_text())["edit"]:
        path = source / change["file"]
        text = path.read_text(encoding="latin-1")
        start = _only(text, change["find"], change["file"])
        end = start + len(change["find"])
        if "before" in change:
            end = _only(text, change["before"], change["file"], end)
        path.write_text(text[:start] + change["put"] + text[end:], encoding="latin-1")


def _only(text: str, part: str, name: str, start: int = 0) -> int:
    """Returns where the text has this part, from `start` on and not twice."""
    if text.count(part, start) != 1:
        raise BuildError(f"{name} has {text.count(part, start)} times what an edit is about: {part.splitlines()[0]!r}")
    return text.index(part, start)
