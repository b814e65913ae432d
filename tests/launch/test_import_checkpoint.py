"""Published weights become a run that training resumes, or a reward model that it uses."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch import flags, import_checkpoint
from oni_jax.host.run_files import LOCK
from oni_jax.learner.update import TrainState, make_optimizer
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.networks.policy import make_policy
from oni_jax.published.published import import_params
from oni_jax.rewards.bk.preference_model import load_preference_model
from oni_jax.rewards.oni.reward_model import QUANTILES, load_reward_model
from oni_jax.rewards.registry import make_rewards
from oni_jax.runs.checkpointing import Checkpoints
from oni_jax.runs.experiment import open_experiment
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import config_from_json
from oni_jax.training.parts import fresh_state
from oni_jax.types import PyTree
from tests.golden.test_bk_networks import weights_of
from tests.published.test_published import golden, golden_weights

TASK = ("--root_env", "NetHackScoreExtendedActions-v1")
NONE = ("--llm_reward_type", "none")
CLASSIFIER = ("--llm_reward_type", "online_cls_reward_model", "--llm_reward_coeff", "0.1")
NORMALISATION = ("--reward_mean", "-0.5", "--reward_variance", "4", "--reward_quantiles")
NUMBERS = ",".join(str(i) for i in range(19))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """The working folder, with the experiments in `train`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, weights: dict[str, np.ndarray], **more: float) -> str:
    np.savez(f"{name}.npz", **weights, **more)  # type: ignore
    return f"{name}.npz"


def import_it(*words: str) -> int:
    return import_checkpoint.main([*words, "--train_dir", "train", "--experiment", "a"])


def refusal(capsys, *words: str) -> str:
    assert import_it(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    return captured.err


def resume(command_line: list[str]) -> TrainState:
    """Returns the state from which launch.train resumes, given the command line that was printed."""
    config = flags.parse(command_line)
    flags.check(config)
    plan = Plan(config)
    policy, rewards = make_policy(config.network, plan.policy_spec), make_rewards(config, plan.world_spec)

    def init() -> TrainState:
        return fresh_state(5, policy, plan.world_spec, rewards, make_optimizer(config.learner))

    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(init))
    with open_experiment(config) as path:  # refuses settings that the run was not made with
        checkpoints = Checkpoints(f"{path}/checkpoints")
        saved = checkpoints.restore(like)
        checkpoints.close()
    assert saved is not None and saved.progress["env_steps"] == 0
    return saved.state


def assert_equal(tree: PyTree, expected: PyTree) -> None:
    jax.tree.map(np.testing.assert_array_equal, tree, expected)


def printed_command(capsys) -> list[str]:
    line = capsys.readouterr().out.splitlines()[-1]
    assert "python -m launch.train " in line
    return line.partition("launch.train ")[2].split()


def test_a_policy_becomes_a_run_that_training_resumes(folder, capsys):
    path = save("policy", golden_weights("policy_and_loss"))
    assert import_it("--policy", path, *TASK, *NONE, "--gamma", "0.999") == 0
    state = resume(printed_command(capsys))
    assert_equal(state.params, import_params(golden_weights("policy_and_loss")))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.opt_state))
    written = config_from_json((folder / "train" / "a" / "config.json").read_text())
    assert written.network.hidden_size == 32 and written.learner.gamma == 0.999
    assert "holds a run already" in refusal(capsys, "--policy", path, *TASK, *NONE)


def test_a_classifier_becomes_the_reward_that_a_run_begins_with(folder, capsys):
    weights = golden_weights("classifier")
    sizes = {"net.0": (512, 128), "net.2": (512, 512), "net.5": (2, 512)}
    rng = np.random.default_rng(0)
    for name, shape in sizes.items():
        weights[f"{name}.weight"] = rng.normal(size=shape).astype(np.float32)
        weights[f"{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    network = ("--encoder_custom", "mlp_encoder", "--root_env", "Catch-v0", "--hidden_size", "8")
    assert import_it("--reward", save("classifier", weights), *CLASSIFIER, *network) == 0
    state = resume(printed_command(capsys))
    assert_equal(state.reward_state.params, import_params(weights))
    small = save("small", golden_weights("classifier"))
    (folder / "train").rename(folder / "elsewhere")
    assert "the classifier does not fit: params/dense_0/bias is (16,)" in refusal(
        capsys, *CLASSIFIER, *network, "--reward", small
    )
    assert "online_cls_reward_model uses" in refusal(capsys, *NONE, *network, "--reward", small)


@pytest.mark.parametrize("name", ["torchbeast_all", "torchbeast_message", "torchbeast_message_small"])
def test_a_ranking_model_becomes_what_motif_rewards_with(name, folder, capsys):
    path = save("ranking", golden_weights(name))
    assert import_it("--reward", path, *NORMALISATION, NUMBERS) == 0
    out = capsys.readouterr().out
    assert "--config score_motif --reward_dir train/a" in out and ("map's corner" in out) == (name == "torchbeast_all")
    model = load_reward_model("train/a")
    assert (model.mean, model.variance) == (-0.5, 4) and model.quantiles == dict(zip(QUANTILES, range(19)))
    file = golden(name)
    observations = {key: file[f"in/{key}"] for key in ("vector_obs", "message", "glyphs")}
    observations["hero_xy"] = observations["vector_obs"][:, :2]
    with jax.default_matmul_precision("highest"):
        params = jax.tree.map(jnp.asarray, model.params)
        rewards = make_ranking_network(model.network).apply(params, observations)
    np.testing.assert_allclose(np.asarray(rewards), file["out/reward"], rtol=1e-4, atol=1e-6)
    assert "holds a reward model already" in refusal(capsys, "--reward", path, *NORMALISATION, NUMBERS)


def test_a_preference_transformer_becomes_what_bk_pref_shapes_with(folder, capsys):
    task = ("--root_env", "BabyAI-Text-PickUp-RedBall-S20")
    weights = weights_of("preference_transformer/minigrid")
    dead = {f"causal_transformer_layer.{name}": np.zeros(3) for name in ("norm1.weight", "self_attn.in_proj_bias")}
    path = save("best_model", {**weights, **dead})
    assert import_it("--reward", path, *task, "--potential_horizon", "4") == 0
    words = "--config bk_pref --root_env BabyAI-Text-PickUp-RedBall-S20 --reward_dir train/a --potential_horizon 4"
    assert words in capsys.readouterr().out
    model = load_preference_model("train/a")
    assert_equal(model.params, import_params(weights))
    assert model.settings.horizon == 4 and not model.settings.is_scaled
    assert "holds a trained network already" in refusal(capsys, "--reward", path, *task)
    assert "a Preference Transformer needs a separate folder" in refusal(
        capsys, "--reward", path, "--policy", save("policy", golden_weights("policy_and_loss")), *TASK, *NONE
    )
    (folder / "train").rename(folder / "elsewhere")
    assert "--root_env Catch-v0: has 3 actions; the network has 7" in refusal(
        capsys, "--reward", path, "--root_env", "Catch-v0"
    )
    del weights["timestep_embedding.weight"]
    assert "timestep_embedding" in refusal(capsys, "--reward", save("less", weights), *task)


def test_the_file_may_tell_the_normalisation(folder, capsys):
    weights = golden_weights("torchbeast_message_small")
    path = save("told", weights, mean=2.5, var=3.0)
    assert refusal(capsys, "--reward", path).endswith(
        "lacks the normalisation of its rewards; add --reward_quantiles\n"
    )
    assert import_it("--reward", path, "--reward_quantiles", NUMBERS) == 0
    assert load_reward_model("train/a")[2:4] == (2.5, 3.0)
    capsys.readouterr()
    for variance in (0.0, -3.0):
        path = save("negative", weights, mean=2.5, var=variance)
        assert f"which {path} holds: must be above 0" in refusal(
            capsys, "--reward", path, "--reward_quantiles", NUMBERS
        )
    path = save("nan", weights, mean=2.5, var=float("nan"))
    assert "add --reward_variance" in refusal(capsys, "--reward", path, "--reward_quantiles", NUMBERS)


def test_mistakes_are_one_line(folder, capsys):
    policy, ranking = save("policy", golden_weights("policy_and_loss")), save("r", golden_weights("torchbeast_message"))
    assert "--policy or --reward" in refusal(capsys, *NONE)
    assert "--llm_reward_type must be given" in refusal(capsys, "--policy", policy, *TASK)
    assert "--root_env that it was trained on" in refusal(capsys, "--policy", policy, *NONE)
    assert "--hidden_size 64: the imported policy has 32" in refusal(
        capsys, "--policy", policy, *TASK, *NONE, "--hidden_size", "64"
    )
    assert "import it by itself" in refusal(capsys, "--policy", policy, "--reward", ranking, *NONE)
    assert f"--policy {ranking} holds no network of the kind policy" in refusal(capsys, "--policy", ranking, *NONE)
    for value in ("1,2", NUMBERS[::-1], NUMBERS.replace("3", "x"), NUMBERS.replace("18", "inf")):
        assert "must be 19 ascending numbers" in refusal(capsys, "--reward", ranking, "--reward_quantiles", value)
    assert "must be above 0" in refusal(capsys, "--reward", ranking, "--reward_variance", "0")
    assert [path.name for path in folder.glob("train/a/*")] == [LOCK]


def test_mistakes_come_before_jax(folder):
    path = save("ranking", golden_weights("torchbeast_message"))
    code = (
        "import sys; from launch.import_checkpoint import main; "
        f"assert main(['--policy', {path!r}, '--llm_reward_type', 'none']) == 2; assert 'jax' not in sys.modules"
    )
    root = pathlib.Path(import_checkpoint.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
