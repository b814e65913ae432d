"""The ring of rows on the devices holds what the host's does, whatever is appended when."""

import jax
import numpy as np
import pytest

from oni_jax.parallel import Replicas
from oni_jax.rewards import dataset
from oni_jax.rewards.dataset import DataSet
from oni_jax.types import ArraySpec

COLUMNS = {"x": ArraySpec((2,), "int32"), "label": ArraySpec((), "int32")}


def rows(numbers) -> dict[str, np.ndarray]:
    numbers = np.asarray(numbers, np.int32)
    return {"x": np.stack([numbers, -numbers], axis=1), "label": numbers % 3}


def on_device(data: DataSet) -> np.ndarray:
    return np.asarray(jax.device_get(data.on_devices())["x"][:, 0])


@pytest.fixture
def data(monkeypatch):
    monkeypatch.setattr(dataset, "BLOCK_SIZE", 4)
    return DataSet(COLUMNS, 10, Replicas(jax.devices()[:1]))


def test_rows_go_round_and_the_oldest_give_way(data):
    expected = np.zeros(10, np.int32)
    for start, stop in ((1, 4), (4, 5), (5, 11), (11, 12), (12, 22), (22, 29)):
        data.append(rows(range(start, stop)))
        for number in range(start, stop):
            expected[(number - 1) % 10] = number
        if start != 5:  # rows of two calls may go to the device together
            np.testing.assert_array_equal(on_device(data), expected)
        assert data.size == min(10, stop - 1)


def test_growing_compiles_nothing(data):
    data.append(rows(range(1, 4)))
    on_device(data)
    writes = []
    write = data._write
    data._write = lambda *arguments: (
        writes.append([np.shape(x) for x in jax.tree.leaves(arguments)]) or write(*arguments)
    )
    for start in (4, 5, 9, 17):
        data.append(rows(range(start, start * 2)))
        on_device(data)
    assert len(writes) > 4 and all(shapes == writes[0] for shapes in writes)


@pytest.mark.parametrize("capacity", [10, 4, 20])
def test_saved_and_restored(data, capacity):
    data.append(rows(range(1, 9)))
    data.append(rows(range(9, 14)))
    saved = data.save()
    assert saved["x"][:, 0].tolist() == list(range(4, 14))
    other = DataSet(COLUMNS, capacity, Replicas(jax.devices()[:1]))
    other.restore(saved)
    assert other.save()["x"][:, 0].tolist() == list(range(4, 14))[-capacity:]
    assert set(on_device(other)) - {0} == set(range(4, 14)[-capacity:])
