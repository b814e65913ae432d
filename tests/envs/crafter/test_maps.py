"""Maps against those of PyPI's `crafter`, and the stock of maps."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from oni_jax.envs.crafter import maps, stock, things
from oni_jax.envs.crafter.noise import lattice_of, noise
from oni_jax.host.caches import cache_folder
from oni_jax.host.runtime import ChildError
from oni_jax.settings.fields import UserError
from tests.envs.crafter.reference import KINDS, Reference


def test_noise_is_that_of_opensimplex():
    opensimplex = pytest.importorskip("opensimplex")
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(12) / 3, np.arange(12) / 3, [3.0]), axis=-1).reshape(-1, 3)  # has ties
    points = np.concatenate([rng.uniform(-300, 300, (500, 3)), grid, grid * 3])
    for seed in (0, 2**31 - 2):
        reference = opensimplex.OpenSimplex(seed)
        np.testing.assert_allclose(
            noise(lattice_of(points), seed), [reference.noise3(*point) for point in points], rtol=0, atol=1e-13
        )


def check_map(seed: int) -> None:
    world = Reference(seed).env._world
    made = maps.make_map(maps.episode_seed(seed, 1))
    np.testing.assert_array_equal(made.materials, world._mat_map)
    born = [(KINDS[type(thing)], *thing.pos.tolist()) for thing in world.objects[1:]]
    found = [(int(kind), *at) for kind, at in zip(made.kinds, made.positions.tolist()) if kind]
    assert found == born


def test_map_is_that_of_crafter():
    check_map(3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_maps_are_those_of_crafter(seed):
    check_map(seed)


def test_stock_is_made_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(stock.CACHE, str(tmp_path))
    stock.load_stock.cache_clear()
    made = stock.load_stock(3)
    np.testing.assert_array_equal(made.materials[2], maps.make_map(maps.episode_seed(stock.SEED, 3)).materials)
    monkeypatch.setattr(stock, "write_stock", lambda *_: pytest.fail("made again"))
    stock.load_stock.cache_clear()
    np.testing.assert_array_equal(stock.load_stock(3).kinds, made.kinds)


def test_damaged_stock_and_unwritable_folder_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv(stock.CACHE, str(tmp_path))
    stock.load_stock.cache_clear()
    stock.load_stock(2)
    (file,) = tmp_path.rglob("*.npz")
    file.write_bytes(b"damaged")
    stock.load_stock.cache_clear()
    with pytest.raises(UserError, match="remove it"):
        stock.load_stock(2)
    (tmp_path / "file").touch()
    monkeypatch.setenv(stock.CACHE, str(tmp_path / "file"))
    with pytest.raises(UserError, match=stock.CACHE):
        stock.load_stock(2)
    stock.load_stock.cache_clear()


@pytest.mark.parametrize("sent, victim", [(signal.SIGTERM, "parent"), (signal.SIGKILL, "child")])
def test_failed_making_is_one_line_and_leaves_no_file(tmp_path, sent, victim):
    program = (
        "from oni_jax.envs.crafter import stock\n"
        "from oni_jax.config import UserError\n"
        "try: stock.load_stock(4096)\n"
        "except UserError as error: raise SystemExit(f'error: {error}')"
    )
    command, variables = [sys.executable, "-c", program], {**os.environ, stock.CACHE: str(tmp_path)}
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        parent = psutil.Process(run.pid)
        while not (makers := [one for one in parent.children() if one.name() == "crafter-maps"]):
            assert run.poll() is None
            time.sleep(0.05)
        (parent if victim == "parent" else makers[0]).send_signal(sent)
        _, errors = run.communicate(timeout=60)
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert run.returncode == 1 and len(said) == 1 and ("died" if victim == "child" else sent.name) in said[0]
    assert not [*tmp_path.iterdir()] and not [one for one in makers if one.is_running()]


def test_an_error_of_the_making_is_told():
    """Its text begins with a letter that pickle takes for an instruction."""
    with contextlib.ExitStack() as stack, pytest.raises(ChildError, match="crafter-maps failed:\nTraceback"):
        list(stock._made_by_children(["no seed"], stack))  # type: ignore


def test_stock_without_a_home_is_in_the_temporary_folder(monkeypatch, tmp_path):
    cache_folder.cache_clear()
    for name, value in {stock.CACHE: "", "XDG_CACHE_HOME": "", "HOME": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stock.load_stock.cache_clear()
    assert stock.load_stock(2).kinds.shape[0] == 2
    assert [*tmp_path.glob("oni_jax_cache_*/crafter_maps_*_2.npz")]
    cache_folder.cache_clear()


def test_no_object_starts_where_it_can_not_stand():
    made = maps.make_map(5)
    born = made.kinds > 0
    x, y = made.positions[born].T
    assert things.IS_WALKABLE[made.materials[x, y]].all()
