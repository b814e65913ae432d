"""Sequences of images as GIF and MP4 files."""

import contextlib
import io
import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from oni_jax.host.files import write_atomically
from oni_jax.settings.fields import UserError
from oni_jax.show.picture import palette

LAST_SECS = 3.0  # duration of the last picture
USE_GIF = "use --record_format gif"


def check_format(name: str) -> None:
    """Raises UserError if the package that writes this format, gif or mp4, is not installed."""
    if name == "mp4":
        ffmpeg()


def ffmpeg() -> str:
    """Returns the program's path. Raises UserError where there is none."""
    try:
        import imageio_ffmpeg  # an extra

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(f"--record_format mp4: needs the package imageio-ffmpeg; install it, or {USE_GIF}") from None


def write_video(path: str, pictures: Iterable[np.ndarray], pictures_per_sec: float) -> None:
    """Writes atomically a file whose name ends in .gif or .mp4.

    Args:
        path: the file.
        pictures: at least one, each [height, width] uint8 into `palette()`.
        pictures_per_sec: the last one stays for LAST_SECS.

    Raises:
        OSError: it can't be written.
        UserError: ffmpeg fails.
    """
    data = gif(pictures, pictures_per_sec)
    if path.endswith(".gif"):
        write_atomically(path, data)
    else:
        _write_mp4(path, data, f"100/{_hundredths(pictures_per_sec)}")


def gif(pictures: Iterable[np.ndarray], pictures_per_sec: float) -> bytes:
    """Returns a GIF file's bytes; see `write_video`."""
    images = _images(pictures, 10 * _hundredths(pictures_per_sec))
    file = io.BytesIO()
    next(images).save(file, "GIF", save_all=True, append_images=images, loop=0)
    return file.getvalue()


def _hundredths(pictures_per_sec: float) -> int:
    """Returns a picture's duration in hundredths of a second, as GIF files give it."""
    return int(100 / pictures_per_sec)


def _images(pictures: Iterable[np.ndarray], millisecs: int) -> Iterator[Image.Image]:
    colors = palette().tobytes()
    for picture, following in itertools.pairwise(itertools.chain(pictures, [None])):
        assert picture is not None
        image = Image.fromarray(picture)
        image.putpalette(colors)
        image.info["duration"] = 1000 * LAST_SECS if following is None else millisecs
        yield image


def _write_mp4(path: str, gif: bytes, rate: str) -> None:
    partial = os.path.abspath(f"{path}.partial")
    target = f"-r {rate} -f mp4 -c:v libx264 -crf 18 -pix_fmt yuv420p"
    command = [ffmpeg(), "-v", "error", "-y", "-f", "gif", "-i", "-", *target.split(), partial]
    try:
        if failure := _failure(command, gif):
            raise UserError(f"{path}: ffmpeg can't write it ({failure}); {USE_GIF}")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(partial)


def _failure(command: Sequence[str], content: bytes) -> str:
    """Runs a program with this input. Returns the last line of its error, "" on success."""
    try:  # a separate process group: Ctrl-C reaches this process only, which lets it finish
        done = subprocess.run(command, input=content, stderr=subprocess.PIPE, process_group=0)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return [f"exit code {done.returncode}", *words][-1] if done.returncode else ""
