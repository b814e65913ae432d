"""The default policy, its loss and its optimiser in PyTorch, as a baseline of our update.

Written for speed without custom kernels: whole-batch layers, the GRU's input product for all steps at once, fused Adam,
everything on the device beforehand. Images come drawn, as bytes: in PyTorch systems the games draw them, so that
neither drawing them nor unpacking records is counted on this side.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.builders import IMAGE_SIDE, PolicyStep, Update, draw_images
from oni_jax.learner.loss import RATIO_BOUNDS, LossInputs
from oni_jax.networks.encoders import HEAD_SIZE
from oni_jax.networks.images import CONV_LAYERS
from oni_jax.settings.learning import LearnerConfig, NetworkConfig
from oni_jax.types import Array, PyTree


class TorchInputs(NamedTuple):
    images: torch.Tensor  # [T+1, B, 3, 72, 72] uint8
    vector_obs: torch.Tensor  # [T+1, B, D]
    message: torch.Tensor  # [T+1, B, M] uint8
    is_first: torch.Tensor  # [T+1, B] bool
    initial_state: torch.Tensor  # [B, H]


class TorchPolicy(nn.Module):
    """The policy: nle_rgbcrop_encoder, a GRU, two heads."""

    def __init__(self, network: NetworkConfig, vector_size: int, message_size: int, num_actions: int):
        super().__init__()
        layers, channels, side = [], 3, IMAGE_SIDE
        for features, size, stride in CONV_LAYERS[network.rgbcrop.subtype]:
            layers += [nn.Conv2d(channels, features, size, stride), nn.ELU(inplace=True)]
            channels, side = features, (side - size) // stride + 1
        self.convolutions = nn.Sequential(*layers)
        hidden = network.hidden_size
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ELU(inplace=True))
        self.vector, self.message = _head(vector_size), _head(message_size)
        self.core = nn.GRUCell(hidden + 2 * HEAD_SIZE + vector_size, hidden)  # holds the weights
        self.logits, self.value = nn.Linear(hidden, num_actions), nn.Linear(hidden, 1)
        self._mean, self._scale = network.rgbcrop.subtract_mean, network.rgbcrop.scale

    def forward(self, inputs: TorchInputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns logits [T+1, B, A], values [T+1, B]."""
        images = inputs.images.flatten(0, 1).float()
        if self._mean:
            images -= self._mean
        images /= self._scale
        images = self.image(self.convolutions(images)).unflatten(0, inputs.is_first.shape)
        messages = self.message(inputs.message.float() / 255)
        encoded = torch.cat([images, self.vector(inputs.vector_obs), inputs.vector_obs, messages], dim=-1)
        features = self._unroll(encoded, inputs.initial_state, inputs.is_first)
        return self.logits(features).float(), self.value(features).squeeze(-1).float()

    def _unroll(self, encoded: torch.Tensor, state: torch.Tensor, is_first: torch.Tensor) -> torch.Tensor:
        core, outputs = self.core, []
        gates = F.linear(encoded, core.weight_ih, core.bias_ih).unbind()
        for step_gates, goes_on in zip(gates, (~is_first).to(state.dtype)[..., None].unbind()):
            state = state * goes_on
            reset_x, update_x, new_x = step_gates.chunk(3, dim=-1)
            reset_h, update_h, new_h = F.linear(state, core.weight_hh, core.bias_hh).chunk(3, dim=-1)
            update = torch.sigmoid(update_x + update_h)
            new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
            state = torch.lerp(new, state.to(new.dtype), update)
            outputs.append(state)
        return torch.stack(outputs)

    def load(self, params: PyTree) -> None:
        """Loads our parameters {"params": ...}."""
        ours = jax.tree.map(lambda array: torch.tensor(np.asarray(array)), params["params"])
        encoder, core = ours["encoder"], ours["core"]["layer_0"]
        with torch.no_grad():
            for i, layer in enumerate(self.convolutions[::2]):
                kernel = encoder["image_stack"][f"conv_{i}"]
                layer.weight.copy_(kernel["kernel"].permute(3, 2, 0, 1))
                layer.bias.copy_(kernel["bias"])
                channels = kernel["bias"].numel()
            kernel = encoder["image"]["kernel"]  # rows (y, x, channel), where nn.Flatten makes (channel, y, x)
            rows = torch.arange(len(kernel)).reshape(-1, channels).T.flatten()  # type: ignore
            _load_dense(self.image[1], {**encoder["image"], "kernel": kernel[rows]})
            for name, head in (("vector", self.vector), ("message", self.message)):
                _load_dense(head[0], encoder[f"{name}_0"])
                _load_dense(head[2], encoder[f"{name}_1"])
            _load_dense(self.logits, ours["logits"])
            _load_dense(self.value, ours["value"])
            self.core.weight_ih.copy_(core["input_kernel"].T)
            self.core.weight_hh.copy_(core["hidden_kernel"].T)
            self.core.bias_ih.copy_(core["input_bias"])
            self.core.bias_hh.zero_()[-len(core["hidden_new_bias"]) :] = core["hidden_new_bias"]


def _head(size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, HEAD_SIZE), nn.ELU(inplace=True), nn.Linear(HEAD_SIZE, HEAD_SIZE), nn.ELU(inplace=True)
    )


def _load_dense(layer: nn.Linear, dense: Mapping[str, torch.Tensor]) -> None:
    layer.weight.copy_(dense["kernel"].T)
    layer.bias.copy_(dense["bias"])


def appo_loss(policy: Callable, inputs: TorchInputs, batch: LossInputs, learner: LearnerConfig) -> torch.Tensor:
    """Computes the loss, with an entropy bonus; the bootstrap value is that of the observation after the last step."""
    logits, values = policy(inputs)
    bootstrap_values, logits, values = values[-1].detach(), logits[:-1], values[:-1]
    all_log_probs = F.log_softmax(logits, dim=-1)
    log_probs = all_log_probs.gather(-1, batch.actions[..., None]).squeeze(-1)
    ratios = torch.exp(log_probs - batch.behaviour_log_probs).clamp(*RATIO_BOUNDS)
    with torch.no_grad():
        vs, advantages = _vtrace(values, bootstrap_values, ratios, batch, learner)
        advantages = (advantages - advantages.mean()) / advantages.std().clamp(min=1e-3)
    weights = batch.mask / batch.mask.sum().clamp(min=1)
    clip = 1 + learner.ppo_clip_ratio
    policy_gains = torch.minimum(ratios * advantages, ratios.clamp(1 / clip, clip) * advantages)
    change = (values - batch.old_values).clamp(-learner.ppo_clip_value, learner.ppo_clip_value)
    value_errors = torch.maximum((values - vs) ** 2, (batch.old_values + change - vs) ** 2)
    entropies = -(all_log_probs.exp() * all_log_probs).sum(-1)
    each = learner.value_loss_coeff * value_errors - policy_gains - learner.exploration_loss_coeff * entropies
    return (weights * each).sum()


def _vtrace(
    values: torch.Tensor, bootstrap: torch.Tensor, ratios: torch.Tensor, batch: LossInputs, learner: LearnerConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes V-trace targets and advantages, [T, B] each."""
    ends = torch.logical_or(batch.terminations, batch.truncations)
    cut = torch.logical_and(batch.truncations, ~batch.terminations)
    next_values = torch.where(cut, batch.truncation_values, torch.cat([values[1:], bootstrap[None]]))
    discounts, goes_on = learner.gamma * (cut | ~ends), (~ends).float()
    rhos = ratios.clamp(max=learner.vtrace_rho)
    errors = rhos * (batch.rewards + discounts * next_values - values)
    traces = discounts * goes_on * ratios.clamp(max=learner.vtrace_c)
    corrections = [torch.zeros_like(bootstrap)]  # vs - v, from the last step backwards
    for error, trace in zip(reversed(errors.unbind()), reversed(traces.unbind())):
        corrections.append(error + trace * corrections[-1])
    correction = torch.stack(corrections[::-1])
    next_vs = next_values + goes_on * correction[1:]
    return values + correction[:-1], rhos * (batch.rewards + discounts * next_vs - values)


def to_tensors(tree: PyTree, device: str) -> PyTree:
    """Converts arrays to tensors on the device; int32 becomes int64, PyTorch's type of indices."""

    def convert(array: np.ndarray) -> torch.Tensor:
        array = np.array(array)
        return torch.from_numpy(array.astype(np.int64) if array.dtype == np.int32 else array).to(device)

    return jax.tree.map(convert, tree)


def device() -> str:
    """Returns the name of JAX's default device in PyTorch."""
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def autocast(precision: str) -> contextlib.AbstractContextManager:
    """Sets the precision of float32 products (float32, tf32); returns a context that autocasts them for bfloat16."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.autocast(device(), torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()


def wait() -> None:
    if device() == "cuda":
        torch.cuda.synchronize()


def torch_inputs(observations: Mapping[str, Array], is_first: Array, core_state: PyTree) -> TorchInputs:
    """Puts observations [T, B, ...], and the core's state before them, on the device."""
    images = jax.jit(draw_images)(observations["chars"], observations["colors"])
    seen = observations["vector_obs"], observations["message"]
    return to_tensors(TorchInputs(images, *seen, is_first, core_state[0][0]), device())


def torch_policy(network: NetworkConfig, params: PyTree, inputs: TorchInputs, num_actions: int) -> TorchPolicy:
    """Builds a policy with our parameters on the device; sets PyTorch's threads to the number of cores."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    policy = TorchPolicy(network, inputs.vector_obs.shape[-1], inputs.message.shape[-1], num_actions)
    policy.load(params)
    return policy.to(device())


class TorchUpdate:
    """The peer of our update, with its parameters and its batch.

    Args:
        ours: before its first update.
        precision: float32, bfloat16 or tf32.
        compiled: True for torch.compile.
        channels_last: memory format of images and convolutions.
    """

    def __init__(self, ours: Update, precision: str = "float32", compiled: bool = False, channels_last: bool = False):
        trajectory, batch = ours.loss_inputs()
        self._inputs = torch_inputs(trajectory.observations, trajectory.is_first, trajectory.initial_core_state)
        self._batch, self._learner = to_tensors(batch, device()), ours.config.learner
        self.policy = torch_policy(ours.config.network, ours.state.params, self._inputs, ours.policy.num_actions)
        if channels_last:
            self.policy.convolutions.to(memory_format=torch.channels_last)
            images = self._inputs.images
            turned = images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
            self._inputs = self._inputs._replace(images=turned.unflatten(0, images.shape[:2]))
        config, weights = self._learner, self.policy.parameters()
        betas = config.adam_beta1, config.adam_beta2
        self._adam = torch.optim.Adam(weights, config.learning_rate, betas, config.adam_eps, fused=True)
        self._loss_fn = torch.compile(appo_loss) if compiled else appo_loss
        self._precision = precision

    def loss(self) -> torch.Tensor:
        with autocast(self._precision):
            return self._loss_fn(self.policy, self._inputs, self._batch, self._learner)

    def run(self, num_updates: int) -> None:
        """Makes updates, and waits for the last one."""
        for _ in range(num_updates):
            self._adam.zero_grad(set_to_none=True)
            self.loss().backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self._learner.max_grad_norm, foreach=True)
            self._adam.step()
        wait()


class TorchForward:
    """The peer of our policy step: forward pass and sampled action, from inputs on the device."""

    def __init__(self, ours: PolicyStep, precision: str = "float32"):
        observations = {name: ours.records[name][None] for name in ("chars", "colors", "vector_obs", "message")}
        state = ((np.zeros((len(ours.records), ours.network.hidden_size), np.float32),),)
        self._inputs = torch_inputs(observations, ours.records["is_first"][None], state)
        self._policy = torch_policy(ours.network, ours.params, self._inputs, ours.num_actions)
        self._precision = precision

    @torch.inference_mode()
    def run(self, num_calls: int) -> None:
        for _ in range(num_calls):
            with autocast(self._precision):
                logits, _ = self._policy(self._inputs)
            torch.distributions.Categorical(logits=logits, validate_args=False).sample().cpu()
