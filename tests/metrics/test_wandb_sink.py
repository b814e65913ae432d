"""Weights & Biases, by a module of the few calls that are used."""

import json
import sys
import types

import pytest

from oni_jax.metrics.rows import histogram
from oni_jax.metrics.sinks import build_sinks
from oni_jax.metrics.wandb_sink import WandbSink
from oni_jax.settings.run import RunConfig
from tests.metrics.rows import ANSWERS


class FakeWandb(types.ModuleType):
    """Stands for the package; records what it is asked for."""

    def __init__(self, broken: bool = False, step: int = 0):
        super().__init__("wandb")
        self.broken, self.step, self.starts, self.rows, self.finished = broken, step, [], [], 0
        self.Settings = lambda **values: values
        self.Histogram = lambda np_histogram: ("histogram", *np_histogram)
        self.Table = lambda columns, data: ("table", columns, data)

    def init(self, **options):
        self.starts.append(options)
        return self

    def log(self, row, step):
        if self.broken:
            raise ConnectionError("no route\nto host")
        self.rows.append((step, row))
        self.step = step

    def finish(self):
        self.finished += 1


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def fake(monkeypatch):
    module = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "key")


def use(folder, run=None, rows=((1, {"a": 1.0, "word": "up"}), (2, {"a": 2.0}))) -> None:
    sink = WandbSink(run or RunConfig(), folder)
    for step, row in rows:
        sink.write(step, row)
    sink.close()


def test_a_missing_package_warns_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    use(tmp_path)
    assert capsys.readouterr().err.count("\n") == 1


def test_a_package_that_breaks_when_imported_warns_once(monkeypatch, tmp_path, capsys):
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wandb.py").write_text("raise TypeError('Descriptors cannot be created directly.\\nMore.')")
    use(tmp_path)
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "Descriptors cannot be created directly.; install" in told


def test_wandb_gets_numbers_and_settings_and_no_terminal_output(fake, key, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"env": {"root_env": "x"}, "run": {"seed": 3}}))
    use(tmp_path, RunConfig(wandb_proj="p", wandb_entity="e", experiment="x"))
    (start,) = fake.starts
    assert (start["project"], start["entity"], start["name"], start["mode"]) == ("p", "e", "x", "online")
    assert start["config"] == {"root_env": "x", "seed": 3} and start["settings"] == {"console": "off"}
    assert fake.rows == [(1, {"a": 1.0}), (2, {"a": 2.0})] and fake.finished == 1


def test_histograms_and_answers(fake, key, tmp_path):
    use(tmp_path, rows=[(1, {"rewards": histogram([1.0, 2.0]), "answers": ANSWERS})])
    ((_, row),) = fake.rows
    kind, counts, edges = row["rewards"]
    assert kind == "histogram" and sum(counts) == 2 and edges[0] == 1 and edges[-1] == 2
    _, columns, data = row["answers"]
    assert columns == ["message", "label", "answer"]
    assert data[0] == ["You find a hidden door.", "helpful", "FOO"]
    assert data[2][0].startswith("\\x1b]0;owned\\x07[red]Fido") and data[2][1] == "unreadable"


def test_online_a_resumed_run_goes_on_under_its_id(fake, key, tmp_path, capsys):
    for _ in range(2):
        use(tmp_path)
    assert fake.starts[0]["id"] == fake.starts[1]["id"]
    assert [start["resume"] for start in fake.starts] == ["allow", "allow"]
    assert capsys.readouterr().err == ""


def test_an_id_that_was_lost_is_made_anew(fake, key, tmp_path):
    (tmp_path / "wandb_id.txt").write_text("")
    for _ in range(2):
        use(tmp_path)
    assert fake.starts[0]["id"] == fake.starts[1]["id"] != ""


def test_steps_that_it_has_already_are_not_sent_again(monkeypatch, key, tmp_path):
    fake = FakeWandb(step=10)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    use(tmp_path, rows=[(8, {"a": 1.0}), (10, {"a": 2.0}), (12, {"a": 3.0})])
    assert fake.rows == [(10, {"a": 2.0}), (12, {"a": 3.0})]


def test_wandb_without_a_key_is_offline_and_says_so(fake, tmp_path, capsys):
    use(tmp_path)
    assert fake.starts[0]["mode"] == "offline" and fake.rows
    assert capsys.readouterr().err.count("\n") == 1


def test_offline_every_start_is_a_new_run_in_one_group(fake, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("oni_jax.metrics.wandb_sink.time.time", lambda: now)
    use(tmp_path, RunConfig(experiment="x"))
    now += 100
    use(tmp_path, RunConfig(experiment="x"))
    first, second = fake.starts
    assert first["id"] != second["id"] and first["group"] == second["group"]
    assert "resume" not in first and first["group"].startswith("x-")


@pytest.mark.parametrize("mode", ["offline", "disabled", "online"])
def test_wandb_s_variable_decides_the_mode(fake, key, tmp_path, monkeypatch, capsys, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    use(tmp_path)
    assert fake.starts[0]["mode"] == mode and capsys.readouterr().err == ""


def test_a_key_may_be_in_netrc(fake, tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text("machine wandb.example.org\nlogin user\npassword secret\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org:8080")
    use(tmp_path)
    assert fake.starts[0]["mode"] == "online" and "secret" not in str(fake.starts)


def test_breaking_warns_once_and_is_left_alone(monkeypatch, tmp_path, capsys, key):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(broken=True))
    use(tmp_path)
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "no route" in errors


def test_a_start_that_fails_ends_no_run(fake, key, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{")
    use(tmp_path)
    assert fake.starts == [] and capsys.readouterr().err.count("\n") == 1


def test_wandb_is_only_used_on_request(fake, key, tmp_path):
    build_sinks(RunConfig(), tmp_path).close()
    assert fake.starts == []
    build_sinks(RunConfig(wandb=True), tmp_path).close()
    assert len(fake.starts) == 1
