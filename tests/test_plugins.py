"""A gymnasium environment from outside the package is trained on, evaluated and filmed by the ordinary programs."""

import asyncio
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from launch import evaluate, inspect_reward, judge, train
from oni_jax.envs import registry
from oni_jax.envs.base import make_step_output
from oni_jax.envs.gymnasium_env import gymnasium_environment
from oni_jax.envs.registry import register_environment
from oni_jax.evaluation.episodes import end_of
from oni_jax.host.plugins import load_plugins
from oni_jax.networks.registry import register_encoder
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec
from tests.support import corridor_plugin
from tests.support.launched import rows
from tests.support.llm_server import llm_server
from tests.support.processes import Launched, summary

PLUGIN = "--plugin=tests.support.corridor_plugin --root_env=Corridor-v0".split()
TRAIN = (
    *PLUGIN,
    *"--encoder_custom=corridor_encoder --num_workers=2 --num_envs_per_worker=4 --batch_size=256 --hidden_size=16 "
    "--rollout=16 --recurrence=16 --llm_reward_type=online_cls --llm_reward_coeff=0.4 --max_episode_steps=30 "
    "--intrinsic_reward_at=next_obs "
    "--learning_rate=0.003 --train_for_env_steps=40960".split(),
)


def answer(prompt: str) -> str:
    """Helpful is who is at the exit."""
    return f"<label>{'FOO' if 'at the exit' in prompt else 'BAR'}</label>"


def test_plugin_s_environment_is_trained_on_evaluated_and_filmed(tmp_path, capfd):
    folder = tmp_path / "run"
    with llm_server(answer) as server:
        flags = (*TRAIN, f"--train_dir={tmp_path}", "--experiment=run", f"--llm_server_addr={server.address}")
        run = Launched("launch.train", *flags)
        output = run.finish()
    assert run.process.returncode == 0, output
    assert any("The walker wants to leave." in prompt and "steps away" in prompt for prompt in server.asked)
    done = summary(folder)
    assert done["labels_held"] == 7 and done["rewarded_steps"] > 0  # at the exit, and 1 to 6 steps away
    assert done["mean_return"] > 0.9 and rows(folder)[0].keys() >= {"env_steps"}
    words = f"--train_dir={tmp_path} --experiment=run --episodes=70 --compare=random --record=1 --num_workers=1".split()
    assert evaluate.main([*words, f"--json={tmp_path / 'evaluation.json'}"]) == 0
    assert "the replay of" not in "".join(capfd.readouterr())
    (evaluation,) = json.loads((tmp_path / "evaluation.json").read_text())["evaluations"]
    assert evaluation["measures"]["return"]["mean"] > 0.9 and evaluation["num_episodes"] == 70
    assert inspect_reward.main([f"--train_dir={tmp_path}", "--experiment=run"]) == 0
    assert "The walker is at the exit." in capfd.readouterr().out
    films = sorted(path.name for path in (folder / "recordings").iterdir())
    assert len(films) >= 3 and all(name.endswith(".gif") for name in films)


def test_judge_without_rules_refuses(tmp_path, capfd, monkeypatch):
    assert train.main([*TRAIN, f"--train_dir={tmp_path}"]) == 2
    told = capfd.readouterr()
    assert "--llm_server_addr" in told.err and told.err.count("\n") == 1 and told.out == ""
    serve = judge.serve
    monkeypatch.setattr(judge, "serve", lambda *args: asyncio.wait_for(serve(*args), 5))
    assert judge.main([*PLUGIN, "--port=0"]) == 2
    told = capfd.readouterr()
    assert "no rules" in told.err and told.err.count("\n") == 1 and told.out == ""


def test_plugins_that_cannot_be(tmp_path, capfd):
    for word, told in (
        ("no_such_module", "No module named"),
        ("tests.support.corridor_plugin,nothing.at.all", "nothing.at.all"),
    ):
        words = f"--plugin={word} --llm_reward_type=none --train_for_env_steps=1 --train_dir={tmp_path}"
        assert train.main(words.split()) == 2
        error = capfd.readouterr().err
        assert told in error and error.count("\n") == 1
    (tmp_path / "broken_plugin.py").write_text("1 / 0\n")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UserError, match="broken_plugin.*ZeroDivisionError"):
        patch.syspath_prepend(tmp_path)
        load_plugins("broken_plugin")


def test_names_are_taken_once():
    with pytest.raises(UserError, match="registered already"):
        register_environment(corridor_plugin.ENVIRONMENT)
    with pytest.raises(UserError, match="registered already"):
        register_encoder("corridor_encoder", corridor_plugin.ENCODER)


class Broken(gymnasium.Wrapper):
    """A corridor that shows something else than it says."""

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        return {**observation, "lamp": np.zeros((1, 2), np.float32)}, info


@pytest.mark.parametrize(
    "name, make, caption, told",
    [
        ("Missing", lambda: gymnasium.make("Mising-v1"), None, "NameNotFound"),
        ("NoFunction", corridor_plugin.Corridor(), None, "not callable"),
        ("Raises", corridor_plugin.Corridor, lambda env, observation: observation["nothing"], "gave no text .KeyError"),
        ("Wordless", corridor_plugin.Corridor, lambda env, observation: None, "gave no text"),
        ("Continuous", lambda: gymnasium.make("Pendulum-v1"), None, "the action space Box"),
    ],
)
def test_environments_that_cannot_be(name, make, caption, told):
    environment = gymnasium_environment(name, make, caption)
    with pytest.raises(UserError, match=f"--root_env {name}: .*{told}") as error:
        environment.make_spec(EnvConfig(root_env=name))
    assert "\n" not in str(error.value)


def test_an_observation_of_another_shape_is_told():
    environment = gymnasium_environment("Broken", lambda: Broken(corridor_plugin.Corridor()))
    spec = environment.make_spec(EnvConfig(root_env="Broken"))
    env = environment.make(EnvConfig(root_env="Broken"), spec, 2, 0, 0)
    with pytest.raises(ValueError, match=r"lamp has the shape \(1, 2\)"):
        env.reset(make_step_output(spec, 2))


def test_fractions_are_not_cut_to_the_whole_numbers_of_a_space():
    scaled = lambda: gymnasium.wrappers.TransformObservation(Odd(), lambda x: {**x, "large": x["large"] / 7}, None)  # noqa: E731
    environment = gymnasium_environment("Scaled", scaled)
    spec = environment.make_spec(EnvConfig(root_env="Scaled"))
    env = environment.make(EnvConfig(root_env="Scaled"), spec, 1, 0, 0)
    with pytest.raises(ValueError, match="large has the type float64, and its observation space has integers"):
        env.reset(make_step_output(spec, 1))


def test_gymnasium_s_time_limit_is_a_truncation():
    limited = lambda: gymnasium.wrappers.TimeLimit(corridor_plugin.Corridor(), 2)  # noqa: E731
    environment = gymnasium_environment("Limited", limited)
    spec = environment.make_spec(EnvConfig(root_env="Limited"))
    env = environment.make(EnvConfig(root_env="Limited", max_episode_steps=5), spec, 1, 0, 0)
    out = make_step_output(spec, 1)
    env.reset(out)
    for truncated in (False, True, False, True):
        env.step(np.array([0], np.int32), out)
        assert out.records["truncated"][0] == out.records["is_first"][0] == truncated
    assert end_of({"return": 0.0, "length": 2.0}, True, 5, 0.0) == "step limit"


class Odd(gymnasium.Env):
    """Whole numbers of 64 bits, and a log that is emptied where it is read."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict({"large": spaces.Box(0, 1 << 40, (2,), np.int64), "bit": spaces.MultiBinary(3)})

    def reset(self, *, seed=None, options=None):
        self.log, self.steps = ["begins"], 0
        return {"large": np.array([7, 1 << 40]), "bit": np.ones(3, np.int8)}, {}

    def step(self, action):
        self.steps += 1
        self.log.append(f"Schritt über {self.steps} €")
        return {"large": np.array([self.steps, 0]), "bit": np.ones(3, np.int8)}, 0.0, bool(action), False, {}


def empty_log(env, observation):
    log, env.log = env.log, []
    return ", ".join(log)


def test_observation_spaces_of_gymnasium():
    environment = gymnasium_environment("Odd", Odd, empty_log)
    spec = environment.make_spec(EnvConfig(root_env="Odd"))
    assert spec.observations["large"] == ArraySpec((2,), "int32")
    env = environment.make(EnvConfig(root_env="Odd"), spec, 2, 0, 0)
    out = make_step_output(spec, 2)
    env.reset(out)
    assert out.records["large"][0].tolist() == [7, 2**31 - 1]
    env.step(np.array([0, 1], np.int32), out)  # the second one ends
    said = "Schritt über 1 €".encode()
    assert out.texts.captions == [said, b"begins"] and out.texts.final_captions[1] == said


class Nested(gymnasium.Env):
    """Tuples, a dictionary within another, texts and several numbers from 0 on."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        {
            "codes": spaces.MultiDiscrete([3, 5], start=[1, 0]),
            "said": spaces.Text(8),
            "hand": spaces.Tuple((spaces.Discrete(4), spaces.Dict({"x": spaces.Box(0, 1, (2,))}))),
        }
    )

    def reset(self, *, seed=None, options=None):
        return self._seen("begins"), {}

    def _seen(self, said):
        return {"codes": np.array([3, 4]), "said": said, "hand": (2, {"x": np.array([0, 1], np.float32)})}

    def step(self, action):
        return self._seen("\u91d1\u91d1\u91d1"), 0.0, False, False, {}


def test_leaves_of_nested_spaces_are_observations_by_name():
    environment = gymnasium_environment("Nested", Nested, lambda env, seen: seen["said"])
    config = EnvConfig(root_env="Nested")
    spec = environment.make_spec(config)
    codes, said, card = ArraySpec((2,), "int32"), ArraySpec((8,), "uint8"), ArraySpec((), "int32", num_ids=4)
    assert spec.observations == {"codes": codes, "said": said, "hand.0": card, "hand.1.x": ArraySpec((2,), "float32")}
    low, high = environment.bounds(config)["codes"]
    assert low.tolist() == [1, 0] and high.tolist() == [3, 4] and "said" not in environment.bounds(config)
    env, out = environment.make(config, spec, 2, 0, 0), make_step_output(spec, 2)
    env.reset(out)
    record = out.records[0]
    assert record["codes"].tolist() == [3, 4] and record["hand.0"] == 2 and record["hand.1.x"].tolist() == [0, 1]
    assert record["said"].tobytes() == b"begins\0\0" and not env.note()
    env.step(np.zeros(2, np.int32), out)  # nine bytes
    assert out.records["said"][1].tobytes() == "\u91d1\u91d1".encode() + b"\0\0"
    assert out.texts.captions[1].decode() == "\u91d1\u91d1\u91d1"


def test_tuple_s_parts_are_observations_by_number():
    class Pair(gymnasium.Env):
        action_space = spaces.Discrete(2)
        observation_space = spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2)))

        def reset(self, *, seed=None, options=None):
            return (3, np.ones(2, np.int8)), {}

    environment = gymnasium_environment("Pair", Pair)
    assert [*environment.make_spec(EnvConfig(root_env="Pair")).observations] == ["observation.0", "observation.1"]


@pytest.mark.parametrize(
    "space, num_actions, message",
    [
        (spaces.Dict({"reward": spaces.Box(0, 1)}), 2, "its observation reward has the name"),
        (spaces.Box(0, 1), 300, "has 300 actions; 256 at most"),
        (spaces.Discrete(4, start=5), 2, "the observation space Discrete"),
        (spaces.Sequence(spaces.Discrete(2)), 2, "TransformObservation turns others into one"),
        (spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))), 2, "the observation space OneOf"),
    ],
)
def test_spaces_that_can_t_be_learnt_from_are_refused(monkeypatch, space, num_actions, message):
    class Own(corridor_plugin.Corridor):
        observation_space = space
        action_space = spaces.Discrete(num_actions)

    monkeypatch.setattr(registry, "ENVIRONMENTS", [gymnasium_environment("Own", Own)])
    with pytest.raises(UserError, match=message):
        registry.env_spec(EnvConfig(root_env="Own"))
