"""launch.train, but for one thing that no flag changes. For `benchmarks.learning_parity`.

python -m benchmarks.changed_training published_drawing --llm_reward_type none ...
"""

import sys
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from launch import train
from oni_jax.runtime import tune_memory

CELL_SIZE = (6, 11)  # pixels cut out for each character by the published drawing


def orthogonal_image_encoder() -> None:
    """The image encoder starts orthogonal, with biases of zero, as all other layers do."""
    from oni_jax.networks import encoders, initializers

    encoders.FAN_IN_UNIFORM = initializers.ORTHOGONAL


def published_drawing() -> None:
    """Characters are drawn as by the published system with a newer Pillow: wrongly."""
    from oni_jax.networks import encoders
    from oni_jax.networks.glyph_table import in_every_color

    encoders.glyph_table = lambda: in_every_color(miscut_ink())


def miscut_ink() -> np.ndarray:
    """[256, 6, 6] uint8. All characters are written in a row in Pillow's own font, in which they differ in width; the
    row is cut into 256 cells alike: some characters come out blank, others as halves of their neighbours.
    """
    width, height = CELL_SIZE
    text = "".join(chr(code) if chr(code).isprintable() else " " for code in range(256))
    image = Image.new("L", (256 * width, height))
    ImageDraw.Draw(image).text((0, 0), text, fill=255, font=ImageFont.load_default())
    cells = [image.crop((code * width, 0, (code + 1) * width, height)) for code in range(256)]
    return np.stack([np.asarray(cell.resize((6, 6), Image.Resampling.BOX)) for cell in cells])


def truncation_is_an_end() -> None:
    """An episode that was cut off counts as ended: nothing is expected of what would have followed."""
    from oni_jax.worlds import actor_world

    make_unpack_fn = actor_world.make_unpack_fn

    def make(*args):
        unpack = make_unpack_fn(*args)

        def changed(batch, version):
            trajectory = unpack(batch, version)
            ends = trajectory.terminations | trajectory.truncations
            return trajectory._replace(terminations=ends, truncations=ends & False)

        return changed

    actor_world.make_unpack_fn = make


CHANGES: Mapping[str, Callable[[], None]] = {
    change.__name__: change for change in (orthogonal_image_encoder, published_drawing, truncation_is_an_end)
}


def main() -> int:
    tune_memory()  # starts this program anew, with all its words
    CHANGES[sys.argv.pop(1)]()
    return train.main()


if __name__ == "__main__":
    sys.exit(main())
