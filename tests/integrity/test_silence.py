"""A start reports in a line what it waits for, or can't have."""

import os
import resource
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from launch import flags
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.labeller import MAX_ITEM_BYTES
from oni_jax.host.restarts import Restarts
from oni_jax.host.runtime import ending
from oni_jax.settings.config import check_config
from oni_jax.settings.fields import UserError
from tests.annotation.test_service import ITEMS, collect, wait_for
from tests.integrity.test_children import service_of
from tests.support.asking import queries, start_judge
from tests.support.processes import ROOT
from tests.support.trials import trial

HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA locking_mode = EXCLUSIVE")
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@trial("label store locked")
def test_locked_store_is_waited_for_with_a_line(tmp_path, capfd):
    path = str(tmp_path / "labels.sqlite")
    LabelStore(path)
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdin and holder.stdout.readline() == b"held\n"
        threading.Timer(3.0, holder.stdin.close).start()
        assert LabelStore(path).count("m", "d") == 0
    assert capfd.readouterr().out.count(f"label store {path}: another process holds it; waiting") == 1


@trial("label store locked")
@pytest.mark.slow
def test_store_that_another_process_is_writing_is_a_line(tmp_path, capfd):
    store = LabelStore(str(tmp_path / "labels.sqlite"))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        store.check_writable()
    assert "another process is writing it" in capfd.readouterr().out


@trial("captions too long")
def test_captions_too_long_to_ask_about_are_put_aside_with_one_line(tmp_path, capfd):
    long = [(b"%d" % i + b"x" * size,) for i, size in enumerate((MAX_ITEM_BYTES, 200_000, 10_000_000))]
    with closing(start_judge()) as judge, closing(service_of(judge, tmp_path, Restarts())) as service:
        service.submit(queries([*long, *ITEMS[:5]]))
        annotations = collect(service, 8)
        assert {x.item for x in annotations if x.answer is None} == {*long}
        service.submit(queries(long))
        wait_for(service, lambda stats: stats["labels_asked"] == 5)
        assert service.stats()["put_aside"] == 3 and service.poll() == []
    assert capfd.readouterr().out.count("too long to ask about") == 1


@trial("limits")
@pytest.mark.parametrize("name", ["hidden_size", "rnn_num_layers", "encoder_hidden_dim", "encoder_crop_dim"])
def test_absurd_size_of_a_network_is_refused(name):
    with pytest.raises(UserError, match=f"--{name} 1000000000: must be from "):
        check_config(flags.parse([f"--{name}=1000000000"]))


@trial("limits")
def test_low_limit_of_open_files_is_named():
    code, line = ending(OSError(24, "Too many open files"))
    assert code == 2 and line.startswith("error: too many open files: ") and "ulimit -n" in line
    assert ending(OSError(2, "No such file"))[1] == ""


@trial("limits")
@pytest.mark.slow
@pytest.mark.parametrize("most", [16, 24, 32])
def test_run_with_few_open_files_ends_with_a_line(most, tmp_path):
    words = f"--root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --train_dir={tmp_path}".split()
    done = subprocess.run(
        [sys.executable, "-m", "launch.train", *words, "--num_workers=8", "--hidden_size=8", "--batch_size=512"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert "oo many open files" in done.stderr.splitlines()[-1]
