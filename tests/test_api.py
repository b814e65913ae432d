"""The Python interface: one import, without JAX, that trains, acts, scores, reads metrics and evaluates."""

import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from PIL import Image

import oni_jax
from launch import flags
from oni_jax.api import with_settings
from oni_jax.envs.base import make_step_output
from oni_jax.envs.registry import make_vector_env
from oni_jax.evaluation import program
from oni_jax.evaluation.playing import ActorsLostError
from oni_jax.host.runtime import ChildError
from oni_jax.settings.config import Config
from tests.evaluation.runs import CATCH, write_run
from tests.support.processes import ROOT

SETTINGS = {
    **CATCH,
    "llm_reward_type": "online_cls",
    "llm_reward_coeff": 0.1,
    "num_workers": 1,
    "num_envs_per_worker": 8,
    "batch_size": 256,
    "actor_pool": "serial",
    "log_every_sec": 0.01,
    "train_for_env_steps": 4096,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> oni_jax.Run:
    return oni_jax.train(**SETTINGS, train_dir=str(tmp_path_factory.mktemp("runs")), experiment="caught")


@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.evaluate(1, num_workers=1),
        lambda run: run.score(["The ball is caught."]),
        lambda run: run.act({name: np.zeros((1, *of.shape), of.dtype) for name, of in run.spec.observations.items()}),
    ],
    ids=["evaluate", "score", "act"],
)
def test_compiled_code_is_kept_for_the_next_program(run, use, monkeypatch):
    kept: list[str] = []
    monkeypatch.setattr("oni_jax.api.keep_compiled_code", lambda: kept.append("kept"))
    use(oni_jax.load_run(run.folder))
    assert kept


def test_the_import_is_quick_and_brings_no_jax():
    code = "import time, sys; start = time.process_time(); import oni_jax; secs = time.process_time() - start; "
    code += "oni_jax.Config, oni_jax.train, oni_jax.register_reward; "
    code += "assert not {'jax', 'flax'} & set(sys.modules); print(secs)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 0.2


def test_everything_it_names_is_there_and_explained():
    for name in oni_jax.__all__:
        value = getattr(oni_jax, name)
        assert name == "__version__" or value.__doc__
    assert {*oni_jax.__all__} <= {*dir(oni_jax)}
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        oni_jax.__getattr__("trian")


def test_metrics_of_a_run(run):
    metrics = run.metrics()
    assert metrics["env_steps"][-1] == 4096 and {"hours", "mean_return", "policy_lag_mean"} <= metrics.keys()
    assert all(values.shape == metrics["env_steps"].shape for values in metrics.values())
    assert run.config.learner.batch_size == 256


def play(run: oni_jax.Run, num_steps: int, greedy: bool) -> float:
    """Plays two environments. Returns the mean reward of a step."""
    env, total = make_vector_env(run.config.env, num_envs=2, first_index=0, seed=3), 0.0
    out = make_step_output(env.spec, 2)
    env.reset(out)
    for _ in range(num_steps):
        actions = run.act(out.records, out.records["is_first"], greedy=greedy)
        assert actions.shape == (2,) and actions.dtype == np.int32
        env.step(actions, out)
        total += float(out.records["reward"].sum())
    env.close()
    return total / num_steps / 2


def test_actions_of_a_policy(run):
    assert play(run, 20, greedy=False) >= -1.0
    shown = {name: np.zeros((3, *array.shape), array.dtype) for name, array in run.spec.observations.items()}
    greedy = [run.act(shown, np.ones(3, bool), greedy=True) for _ in range(2)]
    np.testing.assert_array_equal(*greedy)
    with pytest.raises(oni_jax.UserError, match="board is missing"):
        run.act({"message": shown["message"]})
    with pytest.raises(oni_jax.UserError, match="board is .*; must be"):
        run.act({**shown, "board": shown["board"][:, :2]})


def test_the_recurrent_state_is_kept_between_calls_and_dropped_at_an_episode_s_start(tmp_path):
    write_run(tmp_path / "made_up", CATCH)
    run = oni_jax.load_run(str(tmp_path / "made_up"))
    rng, arrays = np.random.default_rng(0), run.spec.observations
    shown = {name: rng.integers(0, 2, (6, 1, *array.shape)).astype(array.dtype) for name, array in arrays.items()}

    def states(first_at):
        found = []
        for t in range(6):
            run.act({name: values[t] for name, values in shown.items()}, np.array([t in first_at]))
            found.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(run._core_state)]))
        return found

    whole, cut = states({0}), states({0, 3})
    np.testing.assert_array_equal(whole[2], cut[2])
    assert not np.allclose(whole[3], cut[3])


def test_rewards_of_captions(run):
    texts = ["The paddle is below the ball.", b"The ball is to the left.", "The paddle is below the ball."]
    values = run.score(texts)
    assert values.tolist() == [1.0, 0.0, 1.0] and run.score([]).shape == (0,)


def test_an_evaluation(run):
    evaluation = run.evaluate(episodes=3, policy="greedy", num_workers=1)
    assert evaluation.complete and len(evaluation.measures()["return"]) == 3 and evaluation.policy == "greedy"
    by_chance = run.evaluate(episodes=3, policy="random", num_workers=1)
    assert (by_chance.policy, by_chance.experiment, by_chance.labels_by) == ("random", "", "")
    for refused in ({"epsodes": 3}, {"checkpoint": "best"}, {"json": "a.json"}):
        with pytest.raises(oni_jax.UserError, match=next(iter(refused))):
            run.evaluate(**refused)


def test_an_evaluation_that_loses_an_actor_is_no_evaluation(run, monkeypatch):
    def lost(*args, **kwargs):
        raise ActorsLostError(ChildError("actor-0 was killed"), [])

    monkeypatch.setattr(program, "play_episodes", lost)
    with pytest.raises(ChildError, match="an actor process was lost after 0 of 3 episodes"):
        run.evaluate(episodes=3, num_workers=1)


def test_settings_hold_for_all_rewards():
    config = flags.parse("--llm_reward_type online_cls,rnd --llm_reward_coeff 1,2".split())
    assert len(config.others) == 1
    changed = with_settings(config, {"llm_server_addr": "host", "llm_reward_coeff": 0.5})
    for term in changed.terms():
        assert (term.annotation.llm_server_addr, term.reward.llm_reward_coeff) == ("host", 0.5)


@pytest.mark.parametrize(
    "given, flag_words",
    [
        ({"plugin": ["tests.support.corridor_plugin", "tests.support.signals_plugin"]}, ""),
        ({"plugin": ("kitchen",)}, ""),
        ({"plugin": []}, "--plugin="),
        ({"llm_server_addr": ["one:1", "two:2"]}, "--llm_server_addr=one:1+two:2"),
        ({"llm_reward_type": ["online_cls", "rnd"], "llm_reward_coeff": [1, 0.5]}, ""),
        ({"llm_reward_type": "online_cls,rnd", "llm_reward_coeff": 1, "llm_model": "a,b"}, ""),
        (
            {"llm_reward_type": ["online_cls", "ellm"], "llm_server_addr": [["one:1", "two:2"], "three:3"]},
            "--llm_reward_type=online_cls,ellm --llm_server_addr=one:1+two:2,three:3",
        ),
        ({"train_dir": pathlib.Path("there"), "seed": np.int64(3), "gamma": np.float64(0.5)}, ""),
    ],
)
def test_values_from_python_are_those_of_the_flags(given, flag_words):
    def text(value):
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else value

    words = flag_words.split() or [f"--{name}={text(value)}" for name, value in given.items()]
    assert with_settings(Config(), given) == flags.parse(words)


@pytest.mark.parametrize(
    "given, shown",
    [
        ({"root_env": ["a", "b"]}, "root_env is ['a', 'b']: takes one value, no list"),
        ({"seed": [1, 2]}, "takes one value"),
        ({"plugin": ["kitchen", 3]}, "plugin is 3: must be of type str"),
        ({"llm_reward_type": ["online_cls", "rnd"], "llm_reward_coeff": [1.0, 1.0, 1.0]}, "3 values for 2 rewards"),
        ({"llm_reward_coeff": [1.0, 1.0]}, "takes one value"),
        ({"llm_api_key": ["hidden"]}, "takes one value"),
        ({"seed": True}, "seed is True: must be of type int"),
    ],
)
def test_lists_are_refused_where_there_is_one_value(given, shown):
    with pytest.raises(oni_jax.UserError) as error:
        with_settings(Config(), given)
    assert shown in str(error.value) and "hidden" not in str(error.value)


def test_list_of_plugins_serves_environments_and_evaluations(run):
    envs = oni_jax.make_vec("Corridor-v0", plugin=["tests.support.corridor_plugin"])
    envs.reset(seed=1)
    envs.close()
    plugins = ["tests.support.corridor_plugin", "tests.support.signals_plugin"]
    assert run.evaluate(episodes=2, num_workers=1, plugin=plugins).complete
    with pytest.raises(oni_jax.UserError, match="seed is '1': must be of type int"):
        run.evaluate(seed="1")


def test_training_goes_on_outside_the_main_thread(run, tmp_path):
    """It can't handle signals there."""
    failures, unrewarded = [], {"llm_reward_type": "none", "llm_reward_coeff": 0.0}

    def train():
        try:
            oni_jax.train(run.config, train_dir=str(tmp_path), train_for_env_steps=256, **unrewarded)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not failures and oni_jax.load_run(str(tmp_path / "caught")).metrics()["env_steps"][-1] == 256


@pytest.mark.parametrize(
    "values, told",
    [
        ({"batchsize": 3}, "batchsize: there is no such setting; did you mean batch_size"),
        ({"batch_size": "3"}, "batch_size is '3': must be of type int"),
        ({"batch_size": 33}, "--batch_size 33: must be a multiple"),
        ({"root_env": "nothing"}, "nothing"),
        ({"cpu_devices": 3, "batch_size": 288}, "--cpu_devices 3: this process computes with"),
    ],
)
def test_bad_settings(values, told, tmp_path):
    with pytest.raises(oni_jax.UserError) as error:
        oni_jax.train(**{**SETTINGS, **values}, train_dir=str(tmp_path))  # type: ignore
    assert told in str(error.value)


def notebook() -> list[str]:
    """Returns the code of the notebook's cells."""
    cells = json.loads((ROOT / "docs" / "quickstart.ipynb").read_text())["cells"]
    return ["".join(cell["source"]).removesuffix(";") for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    ("repository", "told"), [("", "set REPOSITORY"), ("file:///nowhere/at_all", "git clone .* file:///nowhere/at_all")]
)
def test_notebook_is_told_where_to_install_from(repository, told):
    cell = notebook()[0].replace('REPOSITORY = ""', f"REPOSITORY = {repository!r}")
    code = f'import sys\nsys.modules["oni_jax"] = None\n{cell}'  # as where it is not installed
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.returncode == 1 and re.search(told, result.stderr)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    """Its cells, one after the other, in a process without a script, as a notebook's is."""
    code = notebook()
    assert len(code) == 6 and '"pip", "install"' in code[0]  # the command for a machine without it
    shown = 'assert values.min() >= 0 and values[0] > values[1], values; assert metrics["mean_return"][-1] > 0.5'
    code += [f"values = run.score(texts); {shown}; assert evaluation.complete; assert film.data and rows"]
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", "\n".join(code)]
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-2000:]


def test_rows_are_handed_to_a_function(tmp_path):
    rows = []
    run = oni_jax.train(**SETTINGS, train_dir=tmp_path, experiment="rows", on_row=rows.append)
    assert [row["env_steps"] for row in rows] == run.metrics()["env_steps"].tolist() and len(rows) > 1
    assert json.dumps(rows) and rows[-1]["env_steps"] == 4096 and "mean_return" in rows[-1]


@pytest.mark.parametrize("at", [256, 4096])
def test_error_of_the_function_ends_the_run_which_is_saved(tmp_path, at):
    def stop_early(row):
        if row["env_steps"] >= at:
            raise ValueError("seen enough")

    with pytest.raises(ValueError, match="seen enough") as error:
        oni_jax.train(**SETTINGS, train_dir=tmp_path, experiment="early", on_row=stop_early)
    assert "stop_early" in [frame.name for frame in error.traceback]
    run = oni_jax.load_run(str(tmp_path / "early"))
    assert run.metrics()["env_steps"][-1] >= at and run.evaluate(episodes=1, num_workers=1).complete
    assert oni_jax.train(**SETTINGS, train_dir=tmp_path, experiment="early").metrics()["env_steps"][-1] == 4096


def test_film_is_shown_by_a_notebook(run, tmp_path):
    film = run.film("worst", episodes=3, num_workers=1)
    assert "the worst of 3 episodes, return" in film.about and len(repr(film)) < 200
    shown = film._repr_html_()
    (data,) = re.findall(r'<img src="data:image/gif;base64,([A-Za-z0-9+/=]+)"', shown)
    assert base64.b64decode(data) == film.data and film.data.startswith(b"GIF8")
    film.save(tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as image:
        image.seek(1)  # it has several pictures
    with pytest.raises(oni_jax.UserError, match="which is 'wurst': must be best, median or worst"):
        run.film("wurst")


def test_no_run(tmp_path):
    with pytest.raises(oni_jax.UserError, match="name a training run"):
        oni_jax.load_run(str(tmp_path))
