"""A run's folder: one owner, also after a kill; its settings, whole or refused in a line."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni_jax.host.run_files import LOCK
from oni_jax.runs.experiment import is_running, open_experiment, write_settings
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config, config_from_json, config_to_json
from oni_jax.settings.fields import UserError, settings, with_values
from tests.support.full_disk import full_disk
from tests.support.lockless_disk import lockless_environment


def config_in(folder) -> Config:
    return with_values(Config(), {"train_dir": str(folder), "experiment": "run", "root_env": "Catch-v0"})


OWNER = textwrap.dedent("""
    import sys
    from oni_jax.config import Config, with_values
    from oni_jax.runs.experiment import open_experiment
    config = with_values(Config(), {"train_dir": sys.argv[1], "experiment": "run", "root_env": "Catch-v0"})
    with open_experiment(config) as folder:
        print(folder, flush=True)
        sys.stdin.read()
""")


def test_a_second_owner_is_refused_until_the_first_is_gone_however_it_went(tmp_path):
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    for ending in (signal.SIGKILL, None):
        owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert owner.stdout and owner.stdout.readline().strip() == str(tmp_path / "run")
        with pytest.raises(UserError, match="in use by another run"), open_experiment(config_in(tmp_path)):
            pass
        if ending:
            owner.send_signal(ending)
        owner.communicate()
        with open_experiment(config_in(tmp_path)):
            pass
    assert os.listdir(tmp_path / "run") == [LOCK]
    assert (tmp_path / "run" / LOCK).is_file()  # NFS hands on to other hosts what is locked of a file, not of a folder


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_second_run_is_refused_on_a_disk_without_locks(tmp_path, monkeypatch, capsys, error):
    def fails(*_: object):
        raise OSError(error, os.strerror(error))

    folder = tmp_path / "run"
    environment = lockless_environment(tmp_path, "sqlite", error)
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    monkeypatch.setattr("fcntl.flock", fails)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as owner:
        assert owner.stdout and "its disk has no locks" in owner.stdout.readline()
        assert owner.stdout.readline().strip() == str(folder) and is_running(str(folder))
        with pytest.raises(UserError, match="in use by another run"), open_experiment(config_in(tmp_path)):
            pass
        owner.kill()
    assert not is_running(str(folder)) and capsys.readouterr().out == ""
    with open_experiment(config_in(tmp_path)):
        assert is_running(str(folder)) and "its disk has no locks" in capsys.readouterr().out
    assert os.listdir(folder) == [LOCK]


def test_error_of_a_run_is_not_taken_for_the_lock(tmp_path):
    with pytest.raises(BlockingIOError), open_experiment(config_in(tmp_path)):
        raise BlockingIOError("of the run")


def test_settings_are_whole_or_the_old_ones(tmp_path):
    write_settings(config_in(tmp_path), str(tmp_path))
    with full_disk(100), pytest.raises(UserError, match="can't be written") as error:
        write_settings(Config(), str(tmp_path))
    assert "\n" not in str(error.value)
    assert Run(str(tmp_path)).config == config_in(tmp_path) and os.listdir(tmp_path) == ["config.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe\xfa", b"[" * 100_000, b'{"network": {"hidden_size": -5}}', b'{"env": {"view": "x"}}'],
)
def test_settings_that_are_none_are_refused_in_a_line(tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes(content)
    with pytest.raises(UserError, match="config.json") as error:
        _ = Run(str(tmp_path / "run")).config
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="move it away"), open_experiment(config_in(tmp_path)):
        pass


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(10**400))
names = st.sampled_from([field.name for field, _ in settings(Config())])
nested = st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
sections = st.dictionaries(st.text(max_size=5), st.one_of(nested, st.dictionaries(names, values, max_size=4)))
JSON = st.one_of(st.binary(), st.text(), nested, sections)


@given(content=JSON)
def test_whatever_the_settings_file_holds_it_is_read_or_refused(content):
    import json

    text = content if isinstance(content, bytes | str) else json.dumps(content)
    try:
        config = config_from_json(text)
    except UserError:
        return
    assert config_from_json(config_to_json(config)) == config or "NaN" in config_to_json(config)
