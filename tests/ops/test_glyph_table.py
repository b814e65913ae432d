"""The table that draws a terminal's cells."""

import itertools

import numpy as np

from oni_jax.ops.glyph_table import glyph_table


def test_shape_and_blanks():
    table = glyph_table()
    assert table.shape == (256, 16, 6, 6, 3) and table.dtype == np.uint8
    assert not table[0].any() and not table[ord(" ")].any() and not table[:, 0].any()


def test_colors():
    table = glyph_table()
    drawn = table[ord("@")].reshape(16, 36, 3).max(axis=1)
    strength = drawn[15, 0] / 255
    assert strength > 0.5
    expected = {1: (128, 0, 0), 3: (128, 128, 0), 7: (128, 128, 128), 8: (192, 192, 192), 12: (0, 0, 255)}
    for color, rgb in expected.items():
        np.testing.assert_allclose(drawn[color], np.array(rgb) * strength, atol=1)


def test_characters_differ():
    ink = glyph_table()[33:127, 15, :, :, 0].astype(int)
    distances = [np.abs(one - other).sum() for one, other in itertools.combinations(ink, 2)]
    assert min(distances) > 200
