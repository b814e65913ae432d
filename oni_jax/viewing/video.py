"""Pictures one after another, as GIF and MP4 files."""

import contextlib
import io
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from oni_jax.config import UserError
from oni_jax.files import write_whole
from oni_jax.viewing.picture import palette

LAST_SECS = 3.0  # for which the last picture stays
USE_GIF = "use --record_format gif"


def check_format(name: str) -> None:
    """Raises UserError where what writes this format, gif or mp4, is not installed."""
    if name == "mp4":
        ffmpeg()


def ffmpeg() -> str:
    """The program's path. Raises UserError where there is none."""
    try:
        import imageio_ffmpeg  # pyright: ignore[reportMissingImports]  # an extra

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UserError(f"--record_format mp4: needs the package imageio-ffmpeg; install it, or {USE_GIF}") from None


def write_video(path: str, pictures: Iterable[np.ndarray], pictures_per_sec: float) -> None:
    """Writes a file whose name ends in .gif or .mp4, whole or not at all.

    Args:
        path: the file.
        pictures: at least one, each [height, width] uint8 into `palette()`.
        pictures_per_sec: the last one stays for LAST_SECS.

    Raises:
        OSError: it can't be written.
        UserError: what writes it fails.
    """
    if path.endswith(".gif"):
        _write_gif(path, pictures, pictures_per_sec)
    else:
        _write_mp4(path, pictures, pictures_per_sec)


def _write_gif(path: str, pictures: Iterable[np.ndarray], pictures_per_sec: float) -> None:
    images = _images(pictures, pictures_per_sec)
    file = io.BytesIO()
    next(images).save(file, "GIF", save_all=True, append_images=images, loop=0)
    write_whole(path, file.getvalue())


def _images(pictures: Iterable[np.ndarray], pictures_per_sec: float) -> Iterator[Image.Image]:
    colors = palette().tobytes()
    for picture, following in itertools.pairwise(itertools.chain(pictures, [None])):
        assert picture is not None
        image = Image.fromarray(picture)
        image.putpalette(colors)
        image.info["duration"] = 1000 * LAST_SECS if following is None else 1000 / pictures_per_sec
        yield image


def _write_mp4(path: str, pictures: Iterable[np.ndarray], pictures_per_sec: float) -> None:
    pictures = iter(pictures)
    first = next(pictures)
    height, width = first.shape
    partial = os.path.abspath(f"{path}.partial")
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {pictures_per_sec} -i -"
    target = "-f mp4 -c:v libx264 -crf 18 -pix_fmt yuv420p"
    command = [ffmpeg(), "-v", "error", "-y", *source.split(), *target.split(), partial]
    try:
        failure = _failure(command, _frames(first, pictures, round(LAST_SECS * pictures_per_sec)))
        if failure:
            raise UserError(f"{path}: ffmpeg can't write it ({failure}); {USE_GIF}")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            os.remove(partial)


def _frames(first: np.ndarray, others: Iterable[np.ndarray], num_last: int) -> Iterator[bytes]:
    colors, last = palette(), first
    for last in itertools.chain([first], others):
        yield colors[last].tobytes()
    yield from itertools.repeat(colors[last].tobytes(), num_last)


def _failure(command: Sequence[str], inputs: Iterable[bytes]) -> str:
    """Runs a program that reads these: the last words of one that fails, or ""."""
    with tempfile.TemporaryFile() as told:
        try:  # in a group of its own: Ctrl-C is for this process, which lets it finish
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=told, process_group=0)
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        with contextlib.suppress(BrokenPipeError), process:
            assert process.stdin
            for data in inputs:
                process.stdin.write(data)
        told.seek(0)
        words = told.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(words) if line.strip()), f"exit code {process.returncode}")
        return last if process.returncode else ""
