"""Pictures one after another, as GIF and MP4 files."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image

from oni_jax.config import UserError
from oni_jax.files import write_whole
from oni_jax.viewing.picture import palette

LAST_SECS = 3.0  # for which the last picture stays
CODEC = "libx264"
USE_GIF = "use --record_format gif"


def check_format(name: str) -> None:
    """Raises UserError where what writes this format, gif or mp4, is not installed."""
    if name == "mp4" and find_spec("imageio_ffmpeg") is None:
        raise UserError(f"--record_format mp4: needs the package imageio-ffmpeg; install it, or {USE_GIF}")


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
    first, *others = _images(pictures)
    durations = [1000 / pictures_per_sec] * len(others) + [1000 * LAST_SECS]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    write_whole(path, file.getvalue())


def _images(pictures: Iterable[np.ndarray]) -> Iterator[Image.Image]:
    colors = palette().tobytes()
    for picture in pictures:
        image = Image.fromarray(picture)
        image.putpalette(colors)
        yield image


def _write_mp4(path: str, pictures: Iterable[np.ndarray], pictures_per_sec: float) -> None:
    import imageio_ffmpeg  # pyright: ignore[reportMissingImports]  # an extra

    colors, rest = palette(), iter(pictures)
    picture = next(rest)
    height, width = picture.shape
    partial = f"{path}.partial.mp4"
    rate: Any = pictures_per_sec  # takes a fraction too
    writer: Any = imageio_ffmpeg.write_frames(
        partial, (width, height), fps=rate, codec=CODEC, macro_block_size=2, output_params=["-crf", "18"]
    )
    try:
        writer.send(None)
        writer.send(colors[picture].tobytes())
        for picture in rest:
            writer.send(colors[picture].tobytes())
        for _ in range(round(LAST_SECS * pictures_per_sec)):
            writer.send(colors[picture].tobytes())
        writer.close()
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:  # ffmpeg's own words are many
        reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"{path}: ffmpeg can't write it ({reason}); {USE_GIF}") from None
    finally:
        with contextlib.suppress(OSError):
            os.remove(partial)
