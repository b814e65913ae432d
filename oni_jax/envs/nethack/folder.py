"""The folder of a game, where NetHack keeps its levels and finds its data; and its options, as NLE sets them."""

import os
import tempfile

from oni_jax.envs.nethack.game import CHARACTER
from oni_jax.envs.nethack.tasks import nethack

OPTIONS = ",".join([*nethack.nethack.NETHACKOPTIONS, f"name:{CHARACTER}"])

DATA = "nhdat"
EMPTY_FILES = ("perm", "record", "logfile", "xlogfile")  # NetHack locks these or appends to them


def make_folder() -> tempfile.TemporaryDirectory:
    """Makes a game's folder, as NLE does."""
    folder = tempfile.TemporaryDirectory(prefix="nle")
    os.symlink(os.path.join(nethack.nethack.HACKDIR, DATA), os.path.join(folder.name, DATA))
    for name in EMPTY_FILES:
        with open(os.path.join(folder.name, name), "x"):
            pass
    os.mkdir(os.path.join(folder.name, "save"))
    return folder
