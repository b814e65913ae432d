"""The folder of what is made once and used by later programs: compiled code, Crafter's maps."""

import functools
import hashlib
import os
import platform
import tempfile
from contextlib import suppress

from oni_jax.host.reporting import report
from oni_jax.settings.fields import UserError


def home_cache_folder() -> str:
    """Returns $XDG_CACHE_HOME/oni_jax, or ~/.cache/oni_jax, which may not be there, or be read-only."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "oni_jax")


@functools.cache
def cache_folder() -> str:
    """Returns the home's cache folder; where it can't be written, one in the temporary folder.

    Says so once. Raises UserError: none can be written.
    """
    folder = home_cache_folder()
    if os.path.isabs(folder) and _is_writable(folder):  # a user without an entry has no home: `~` stays
        return folder
    try:
        instead = os.path.join(tempfile.gettempdir(), f"oni_jax_cache_{os.getuid()}")
    except OSError as error:
        raise UserError(f"there is no folder for temporary files ({error.strerror}); set $TMPDIR") from None
    # Others write in the temporary folder, too: code that they put there is not run.
    if not _is_writable(instead) or os.path.islink(instead) or os.lstat(instead).st_uid != os.getuid():
        raise UserError(f"neither {folder} nor {instead} can be written: set $XDG_CACHE_HOME to a folder that can")
    os.chmod(instead, 0o700)
    report(f"{folder} can't be written: {instead} keeps compiled code and maps ($XDG_CACHE_HOME names another)")
    return instead


def _is_writable(folder: str) -> bool:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def keep_compiled_code() -> None:
    """Turns on JAX's persistent compilation cache; $JAX_COMPILATION_CACHE_DIR names another folder for it."""
    import jax  # takes seconds

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with suppress(UserError):  # an unwritable cache is none
            folder = os.path.join(cache_folder(), f"compiled-{_processor_digest()}")
            jax.config.update("jax_compilation_cache_dir", folder)


def _processor_digest() -> str:
    """Returns a hash of the processor's features: in a common home folder, code is compiled for each kind apart."""
    try:
        with open("/proc/cpuinfo") as file:
            features = next(line for line in file if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.platform()
    return hashlib.sha256(features.encode()).hexdigest()[:8]
