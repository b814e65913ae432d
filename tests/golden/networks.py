"""Recorded values of the published networks and losses, computed again by ours from their weights and inputs."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from oni_jax.learner import loss
from oni_jax.networks.glyphs import RankingNetwork, TorchbeastEncoder, crop_glyphs
from oni_jax.networks.policy import ActorCritic, make_policy
from oni_jax.ops import losses, shaping
from oni_jax.published.published import import_params
from oni_jax.settings.learning import LearnerConfig, NetworkConfig, RgbcropConfig, TorchbeastConfig
from oni_jax.settings.rewards import CaptionRewardConfig, RewardConfig
from oni_jax.types import ArraySpec, EnvSpec

Npz = Mapping[str, np.ndarray]
Result = tuple[str, float, float]
"""(output, its largest error, the largest one allowed)"""

TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 2e-3
ROUNDING = 5e-6  # fraction of an array's largest value by which float32 sums in another order may differ

# Settings that the recording does not hold (golden data's README).
LEARNER = LearnerConfig(gamma=0.99, reward_scale=1.0, bootstrap="published")
REWARD = RewardConfig(
    extrinsic_reward_coeff=0.1, llm_reward_coeff=0.4, captions=CaptionRewardConfig(count_exponent=3.0)
)


def recognises(npz: Npz) -> bool:
    return _is_policy(npz) or _is_torchbeast(npz)


def check(npz: Npz) -> list[Result]:
    """Every output and gradient of a policy_and_loss or torchbeast file."""
    with jax.default_matmul_precision("highest"):
        computed = policy_outputs(npz) if _is_policy(npz) else torchbeast_outputs(npz)
    names = [name for name in npz if name.startswith(("out/", "g/"))]
    return [compare(name, npz[name], computed.get(name)) for name in names]


def compare(name: str, recorded: np.ndarray, computed: np.ndarray | None) -> Result:
    """Largest relative error; integers: the largest difference, none being allowed.

    Within the tolerance means |computed - recorded| <= tolerance |recorded| + ROUNDING max |recorded|.
    """
    exact = np.issubdtype(recorded.dtype, np.integer)
    tolerance = 0.0 if exact else GRADIENT_TOLERANCE if name.startswith("g/") else TOLERANCE
    if computed is None or np.shape(computed) != recorded.shape:
        return name, np.inf, tolerance
    recorded = recorded.astype(np.float64)
    size = np.abs(recorded)
    scale = 1.0 if exact else np.maximum(size + ROUNDING / tolerance * size.max(initial=0.0), np.finfo(np.float32).tiny)
    errors = np.abs(np.asarray(computed, np.float64) - recorded) / scale
    return name, float(np.nan_to_num(errors, nan=np.inf).max(initial=0.0)), tolerance


def weights_of(npz: Npz) -> dict[str, np.ndarray]:
    return {name.removeprefix("w/"): npz[name] for name in npz if name.startswith("w/")}


def _is_policy(npz: Npz) -> bool:
    return {"in/obs", "in/behaviour_logp", "out/vs", "w/critic_linear.weight"} <= set(npz)


def _is_torchbeast(npz: Npz) -> bool:
    return {"in/glyphs", "out/encoder", "out/reward", "w/encoder.fc.0.weight"} <= set(npz)


def recorded_policy(npz: Npz) -> ActorCritic:
    """The policy with the sizes of the recorded weights."""
    num_convs = sum(".conv_head." in name and name.endswith(".weight") for name in weights_of(npz))
    network = NetworkConfig(
        encoder_custom="nle_rgbcrop_encoder",
        hidden_size=npz["w/core.core.weight_hh_l0"].shape[1],
        rgbcrop=RgbcropConfig(scale=255.0, subtype="convnet_simple" if num_convs == 3 else "convnet_impala"),
    )
    names = {"obs": "in/obs", "vector_obs": "in/vector_obs", "message": "in/message"}
    observations = {ours: ArraySpec(npz[name].shape[1:], f"{npz[name].dtype}") for ours, name in names.items()}
    spec = EnvSpec(observations, len(npz["w/action_parameterization.distribution_linear.bias"]), True, ())
    return make_policy(network, spec)


def policy_outputs(npz: Npz) -> dict[str, np.ndarray]:
    """Every `out/` and `g/` of a policy_and_loss file, by our code, in the recording's layout."""
    policy, params = recorded_policy(npz), import_params(weights_of(npz))
    batch_size, num_steps = npz["in/dones"].shape
    dones = npz["in/dones"].T != 0
    observations = {
        name: jnp.asarray(npz[f"in/{name}"]).reshape(batch_size, num_steps, *npz[f"in/{name}"].shape[1:]).swapaxes(0, 1)
        for name in ("obs", "vector_obs", "message")
    }
    is_first = np.concatenate([np.zeros_like(dones[:1]), dones[:-1]])
    core_state = ((jnp.asarray(npz["in/h0"]),),)
    batch = recorded_batch(npz)

    def loss_fn(params: Any) -> tuple[jax.Array, Any]:
        (output, _), captured = policy.apply(
            params, observations, core_state, is_first, capture_intermediates=True, mutable=["intermediates"]
        )
        total, auxiliary = loss.appo_loss(output.logits, output.values, output.values[-1], batch, LEARNER)
        return total, (output, captured["intermediates"], auxiliary)

    (total, aux), gradients = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params)
    output, captured, (metrics, targets) = aux
    # Ours are a linear map of theirs: a bias that is kept merged has one gradient for both that were added up.
    (exported,) = jax.vjp(import_params, weights_of(npz))[1](gradients)
    time_major = {
        "encoder": captured["encoder"]["__call__"][0].reshape(num_steps, batch_size, -1),
        "core": captured["core"]["__call__"][0][0],
        "logits": output.logits,
        "values": output.values,
        "vs": targets.vs,
        "raw_advantages": targets.pg_advantages,
        "advantages": losses.normalise_advantages(targets.pg_advantages),
    }
    scalars = {
        "policy_loss": metrics["policy_loss"],
        "value_loss": metrics["value_loss"],
        "entropy_loss": metrics["exploration_loss"],
        "loss": total,
        "grad_norm": optax.tree.norm(exported),
    }
    return (
        {f"out/{name}": np.asarray(x).swapaxes(0, 1) for name, x in time_major.items()}
        | {f"out/{name}": np.asarray(x) for name, x in scalars.items()}
        | {f"g/{name}": x for name, x in exported.items()}
    )


def recorded_batch(npz: Npz) -> loss.LossInputs:
    """The recorded batch [T, B], its rewards mixed as in training."""
    recorded = {name: jnp.asarray(npz[f"in/{name}"].T) for name in ("actions", "behaviour_logp", "old_values")}
    env_reward, llm_reward, counts = (jnp.asarray(npz[f"in/{n}"].T) for n in ("env_reward", "llm_reward", "msg_count"))
    rewards = shaping.mix_rewards(
        shaping.clip_reward(env_reward, LEARNER.reward_scale, LEARNER.reward_clip),
        shaping.episodic_count_bonus(llm_reward, counts, REWARD.captions.count_exponent)[None],
        REWARD.extrinsic_reward_coeff,
        [REWARD.llm_reward_coeff],
    )
    dones = jnp.asarray(npz["in/dones"].T != 0)
    return loss.LossInputs(
        actions=recorded["actions"].astype(jnp.int32),
        behaviour_log_probs=recorded["behaviour_logp"],
        old_values=recorded["old_values"],
        rewards=rewards,
        terminations=dones,
        truncations=jnp.zeros_like(dones),
        truncation_values=jnp.zeros_like(rewards),
        mask=jnp.ones_like(dones),
    )


def torchbeast_outputs(npz: Npz) -> dict[str, np.ndarray]:
    """Every `out/` of a torchbeast file, by our code."""
    weights = weights_of(npz)
    embedding = weights.get("encoder.embed.weight")
    characters = weights.get("encoder.char_lt.weight")
    use_crop = "out/crop" in npz
    network = NetworkConfig(
        torchbeast=TorchbeastConfig(
            embedding_dim=0 if embedding is None else embedding.shape[1],
            hidden_dim=len(weights["encoder.fc.2.bias"]),
            crop_dim=npz["out/crop"].shape[-1] if use_crop else 0,
            num_layers=sum(name.startswith("encoder.extract_representation.") for name in weights) // 2,
            msg_model="none" if characters is None else "lt_cnn" if characters.shape[1] == 32 else "lt_cnn_small",
            use_blstats="encoder.embed_blstats.0.weight" in weights,
            use_crop=use_crop,
            use_glyphs="encoder.extract_representation.0.weight" in weights,
        )
    )
    observations = {name: jnp.asarray(npz[f"in/{name}"]) for name in ("vector_obs", "message", "glyphs")}
    observations["hero_xy"] = observations["vector_obs"][:, :2]
    reward, captured = RankingNetwork(TorchbeastEncoder(network)).apply(
        import_params(weights), observations, capture_intermediates=True, mutable=["intermediates"]
    )
    outputs = {"out/reward": reward, "out/encoder": captured["intermediates"]["encoder"]["__call__"][0]}
    if use_crop:
        outputs["out/crop"] = crop_glyphs(observations["glyphs"], observations["hero_xy"], network.torchbeast.crop_dim)
    return {name: np.asarray(x) for name, x in outputs.items()}
