"""launch.train with one change that no flag makes, for `benchmarks.learning_parity`.

python -m benchmarks.changed_training published_drawing --llm_reward_type none ...
"""

import sys
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from launch import train
from oni_jax.host.large_pages import tune_memory

CELL_SIZE = (6, 11)  # pixels that the published drawing crops for a character


def orthogonal_image_encoder() -> None:
    """Initialises the image encoder orthogonally with zero biases, like all other layers."""
    from oni_jax.networks import encoders, initializers

    encoders.FAN_IN_UNIFORM = initializers.ORTHOGONAL


def published_drawing() -> None:
    """Draws characters, wrongly, as the published system does with a newer Pillow."""
    from oni_jax.networks import encoders
    from oni_jax.ops.glyph_table import in_every_color

    encoders.glyph_table = lambda: in_every_color(miscut_ink())


def miscut_ink() -> np.ndarray:
    """Returns [256, 6, 6] uint8. A row of all characters in Pillow's font, of variable width, is cut into 256 equal
    cells: some characters come out blank, others as halves of their neighbours.
    """
    width, height = CELL_SIZE
    text = "".join(chr(code) if chr(code).isprintable() else " " for code in range(256))
    image = Image.new("L", (256 * width, height))
    ImageDraw.Draw(image).text((0, 0), text, fill=255, font=ImageFont.load_default())
    cells = [image.crop((code * width, 0, (code + 1) * width, height)) for code in range(256)]
    return np.stack([np.asarray(cell.resize((6, 6), Image.Resampling.BOX)) for cell in cells])


def truncation_is_an_end() -> None:
    """Treats truncations as terminations: without a bootstrap value."""
    from oni_jax.worlds.actors import actor_world

    make_unpack_fn = actor_world.make_unpack_fn

    def make(*args):
        unpack = make_unpack_fn(*args)

        def changed(batch, version):
            trajectory = unpack(batch, version)
            ends = trajectory.terminations | trajectory.truncations
            return trajectory._replace(terminations=ends, truncations=ends & False)

        return changed

    actor_world.make_unpack_fn = make  # type: ignore


CHANGES: Mapping[str, Callable[[], None]] = {
    change.__name__: change for change in (orthogonal_image_encoder, published_drawing, truncation_is_an_end)
}


def main() -> int:
    tune_memory()  # restarts this program in place, with its command line
    CHANGES[sys.argv.pop(1)]()
    return train.main()


if __name__ == "__main__":
    sys.exit(main())
