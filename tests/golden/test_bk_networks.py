"""BK's networks (arXiv 2407.03964) by recorded outputs: the actor-critic, and random network distillation.

Its weights were made by a formula and are made again here. Ours has one critic, which stands in for each of the two.
The published networks of curiosity have fewer dense layers; those of ours that are left over are set to the identity.
"""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.base import record_dtype
from oni_jax.evaluation.agents import make_act_fn
from oni_jax.networks import bk
from oni_jax.networks.distillation import Embedding
from oni_jax.networks.initializers import XAVIER_UNIFORM
from oni_jax.networks.policy import ActorCritic, PolicyOutput, make_policy
from oni_jax.ops import losses
from oni_jax.ops.moments import Moments
from oni_jax.ops.records import as_bytes
from oni_jax.rewards.baselines import rnd, rnd_inputs
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import RewardConfig, RndConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec
from tests.golden import data_file
from tests.rewards.test_conformance import trajectory_of

SHAPES = json.loads(data_file("bk_parameter_shapes.json").read_text())
SCALE = (10, 5, 3)  # largest type, colour and state of a MiniGrid cell
SIZE = 512  # size of every dense layer
NETWORK = NetworkConfig(
    encoder_custom="bk_encoder",
    hidden_size=SIZE,
    use_rnn=False,
    policy_heads="bk",
    policy_initialization="xavier_uniform",
)
WORLDS = ("minigrid", "crafter")
ROUNDING = 2e-7  # the outputs are below 1; from one row to the next they differ by some 1e-5 to 1e-3


def weights_of(network: str) -> dict[str, np.ndarray]:
    """Returns the recorded network's weights by their published names."""
    weights = {}
    for number, (name, shape) in enumerate(SHAPES["named_parameters"][network]):
        scale = 0.05 if len(shape) == 1 else 0.5 / math.prod(shape[1:]) ** 0.5
        waves = np.sin(0.37 * np.arange(math.prod(shape)) + 1.3 * number + SHAPES["phase"])
        weights[name] = (scale * waves).reshape(shape).astype(np.float32)
    return weights


def dense(weights: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {"kernel": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]}


def trunk(weights: dict[str, np.ndarray], prefix: str) -> dict[str, dict[str, np.ndarray]]:
    """Parameters of our encoder: channels last."""
    params = {
        f"conv_{i}": {
            "kernel": weights[f"{prefix}.{number}.weight"].transpose(2, 3, 1, 0),
            "bias": weights[f"{prefix}.{number}.bias"],
        }
        for i, number in enumerate((0, 2, 4))
    }
    layer = dense(weights, f"{prefix}.7")
    channels = len(params["conv_2"]["bias"])
    side = math.isqrt(len(layer["kernel"]) // channels)
    kernel = layer["kernel"].reshape(channels, side, side, -1).transpose(1, 2, 0, 3)
    return {**params, "dense": {**layer, "kernel": kernel.reshape(-1, SIZE)}}


class Recording:
    """Recorded outputs of one world's networks, and the images, as ours reads them."""

    def __init__(self, world: str):
        with np.load(data_file(f"bk_networks_{world}.npz")) as npz:
            self.outputs = dict(npz)
        x = self.outputs["x"].transpose(0, 2, 3, 1)  # was channel first
        raw = x if x.dtype == np.uint8 else x * np.array(SCALE, np.float32)
        self.images = np.rint(raw).astype(np.uint8)
        np.testing.assert_allclose(raw, self.images, atol=1e-6)
        observations = {bk.IMAGE: ArraySpec(self.images.shape[1:], "uint8")}
        self.spec = EnvSpec(observations, self.outputs["logits"].shape[1], False, ())
        self.agent, self.rnd = weights_of(f"agent/{world}"), weights_of(f"rnd/{world}")


@pytest.fixture(scope="module", params=WORLDS)
def recording(request) -> Recording:
    return Recording(request.param)


@pytest.mark.parametrize("critic", ["critic_ext", "critic_int"])
def test_features_logits_and_values(recording, critic):
    policy, weights = make_policy(NETWORK, recording.spec), recording.agent
    assert isinstance(policy, ActorCritic)
    heads = {"logits_hidden": "actor.0", "logits": "actor.2", "value_hidden": "extra_layer.0", "value": critic}
    layers = {ours: dense(weights, published) for ours, published in heads.items()}
    params = {"params": {"encoder": trunk(weights, "network"), **layers}}
    images = {bk.IMAGE: recording.images[None]}
    is_first = np.ones((1, len(recording.images)), bool)
    (found, _), captured = policy.apply(
        params, images, (), is_first, capture_intermediates=True, mutable=["intermediates"]
    )
    ((features, _),) = captured["intermediates"]["core"]["__call__"]
    np.testing.assert_allclose(np.asarray(features)[0], recording.outputs["hidden"], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(found.logits[0], recording.outputs["logits"], rtol=0, atol=ROUNDING)
    value = recording.outputs[f"value_{critic.removeprefix('critic_')}"][:, 0]
    np.testing.assert_allclose(found.values[0], value, rtol=0, atol=ROUNDING)


def test_probabilities_entropy_and_greedy_action_of_the_recorded_logits(recording):
    outputs = recording.outputs
    logits = outputs["logits"]
    found = losses.action_log_probs(logits, outputs["action"].astype(np.int32))
    np.testing.assert_allclose(found, outputs["logprob"], rtol=1e-6)
    np.testing.assert_allclose(losses.entropy(logits), outputs["entropy"], rtol=1e-6)

    def policy_apply(params, observations, core_state, is_first):
        return PolicyOutput(jnp.asarray(logits[None]), jnp.zeros((1, len(logits)))), core_state

    record, none = record_dtype(recording.spec), np.zeros(len(logits), np.int32)
    act = make_act_fn(policy_apply, recording.spec, record, greedy=True)
    actions, _ = act((), jax.random.key(0), (), jnp.asarray(as_bytes(np.zeros(len(logits), record))), none, none)
    np.testing.assert_array_equal(actions, outputs["greedy"])


def distillation_params(weights: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """Parameters of our target and our predictor that compute what the published ones do.

    The target ends with its trunk, ours with a dense layer more. The predictor's trunk is followed by ReLU; ours by a
    dense layer, then ReLU.
    """
    identity = {"kernel": np.eye(SIZE, dtype=np.float32), "bias": np.zeros(SIZE, np.float32)}
    target = {"encoder": trunk(weights, "target"), "output": identity}
    predictor = {
        "encoder": trunk(weights, "predictor.0"),
        "hidden_0": identity,
        "hidden_1": dense(weights, "predictor.2"),
        "output": dense(weights, "predictor.4"),
    }
    return {"params": target}, {"params": predictor}


def test_target_and_predictor_of_curiosity(recording):
    target, predictor = distillation_params(recording.rnd)
    encoder, images = bk.make_bk_encoder(NETWORK, recording.spec), {bk.IMAGE: recording.images}
    for params, hidden_sizes, name in ((target, (), "rnd_target"), (predictor, (SIZE, SIZE), "rnd_prediction")):
        network = Embedding(encoder, hidden_sizes, SIZE, XAVIER_UNIFORM)
        found = np.asarray(network.apply(params, images))
        np.testing.assert_allclose(found, recording.outputs[name], rtol=0, atol=ROUNDING)


def test_curiosity_and_the_predictor_s_loss(recording, monkeypatch):
    """The reward as a run makes it, in an environment that shows these images: normalised, here as bk_encoder would."""
    monkeypatch.setattr(rnd_inputs, "env_spec", lambda *args: recording.spec)
    settings = RewardConfig(llm_reward_type="rnd", rnd=RndConfig(output_dim=SIZE, update_proportion=1.0))
    config = Config(EnvConfig(root_env="Catch-v0"), network=NETWORK, reward=settings)
    reward = rnd.make(RewardContext(config, recording.spec))
    empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(reward.init, jax.random.key(0)))
    target, predictor = distillation_params(recording.rnd)
    shape = recording.images.shape[1:]
    scale = np.array(bk.MINIGRID_SCALE) if shape[0] < bk.SMALL_SIDE else bk.PIXEL_SCALE
    variance = np.broadcast_to(np.float32(scale**2), shape)
    seen = Moments(np.zeros_like(variance), variance, np.float32(1e15))
    predictor = empty.predictor._replace(params=predictor)
    state = empty._replace(target=target, predictor=predictor, inputs={bk.IMAGE: seen})
    images = recording.images[:, None]  # one trajectory, after whose steps they are seen
    zeros = np.zeros((len(images), 1), np.float32)
    trajectory = trajectory_of(
        observations={bk.IMAGE: np.concatenate([images[:1] * 0, images])},
        final_observations={bk.IMAGE: images * 0},
        terminations=zeros,
        truncations=zeros,
        rewards=zeros,
    )
    rewards, after = jax.jit(reward.score)(state, trajectory, {}, np.zeros(2, np.uint32))
    metrics = reward.state_metrics(after)
    outputs = recording.outputs
    np.testing.assert_allclose(rewards[:, 0] * metrics["deviation"], outputs["curiosity"], rtol=2e-6)
    loss = np.mean((outputs["rnd_target"] - outputs["rnd_prediction"]) ** 2)
    assert metrics["loss"] == pytest.approx(loss, rel=2e-6)
