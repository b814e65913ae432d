"""Our jitted update in frames a second, beside the same update in PyTorch, and the machine's matrix products.

    python -m benchmarks.update --batch_sizes 1024,4096 --precisions float32 --json update.json

A frame is one step of one game. Batches lie on the device. PyTorch (benchmarks/peers/torch_update.py) is measured
when it is installed, in turn with ours, on as many threads as there are cores. FLOPs are counted from the layers'
shapes, as three forward passes less the gradients of the inputs; ours looks its first layer up on the CPU instead of
computing it, and is credited with it all the same.
"""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import util
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from absl import app, flags

from benchmarks.harness import JSON, alternate, measure_rate, num_repeats, ratio, sized, spread, write_report
from benchmarks.samples import sample_batch, sample_config, sample_spec
from oni_jax.buffers.exchange import policy_record_dtype
from oni_jax.config import Config
from oni_jax.envs.base import record_dtype
from oni_jax.envs.glyph_table import glyph_table
from oni_jax.learner.batches import make_unpack_fn, pack
from oni_jax.learner.loop import initial_key
from oni_jax.learner.loss import LossInputs, make_loss_fn
from oni_jax.learner.update import TrainState, make_optimizer, make_update_fn
from oni_jax.networks.images import CONV_LAYERS, draw, make_window
from oni_jax.networks.policy import init_params, make_policy
from oni_jax.ops import losses, shaping
from oni_jax.rewards.registry import REWARD_TYPES, make_reward
from oni_jax.types import PyTree, Trajectory

_BATCH_SIZES = flags.DEFINE_list("batch_sizes", None, "Frames in an update. (default: 1024,4096; 64 with --smoke)")
_PRECISIONS = flags.DEFINE_list("precisions", ["float32"], "Precisions of the policy.")
_REWARD_TYPE = flags.DEFINE_enum("reward_type", "none", REWARD_TYPES, "Reward inside our update.")
_TORCH_COMPILE = flags.DEFINE_bool("torch_compile", True, "Whether torch.compile is measured too.")
_SECS = flags.DEFINE_float("secs", 2.0, "Seconds of each measurement, at least.")
IMAGE_SIDE = 72


class Update:
    """Our update as a run builds it, on a sampled batch."""

    def __init__(self, config: Config):
        spec = sample_spec()
        policy = make_policy(config.network, spec, glyph_table())
        batch, reward = sample_batch(config, spec, policy), make_reward(config)
        records = record_dtype(spec), policy_record_dtype(spec.num_actions)
        self.unpack = make_unpack_fn(spec, *records, config.reward.intrinsic_reward_at)
        self.packed = pack(batch, reward.prepare(batch.captions), 0)
        optimizer, key = make_optimizer(config.learner), initial_key(0)
        params = init_params(policy, spec, key)
        self.state = TrainState(params, optimizer.init(params), reward.init(key), key)
        loss_fn = make_loss_fn(policy.apply, config.learner, config.reward)
        self._update = jax.jit(make_update_fn(loss_fn, reward, optimizer, self.unpack))
        self.policy, self.reward, self.config = policy, reward, config

    def run(self, num_updates: int) -> float:
        """Returns the last update's loss when all are done."""
        metrics: Mapping[str, Any] = {}
        for _ in range(num_updates):
            self.state, metrics = self._update(self.state, self.packed)
        return float(jax.block_until_ready((self.state, metrics))[1]["loss"])

    def loss_inputs(self) -> tuple[Trajectory, LossInputs]:
        """The batch unpacked, and what the loss makes of it."""
        trajectory = jax.jit(self.unpack)(self.packed)
        learner, reward = self.config.learner, self.config.reward
        scored = self.reward.score(self.state.reward_state, trajectory, self.packed.features)
        extrinsic = shaping.clip_reward(trajectory.rewards, learner.reward_scale, learner.reward_clip)
        intrinsic = shaping.count_discount(scored.rewards, trajectory.caption_counts, reward.beta_count_exponent)
        return trajectory, LossInputs(
            actions=trajectory.actions,
            behaviour_log_probs=losses.action_log_probs(trajectory.behaviour_logits, trajectory.actions),
            old_values=trajectory.values,
            rewards=shaping.mix_rewards(extrinsic, intrinsic, reward.extrinsic_reward_coeff, reward.llm_reward_coeff),
            terminations=trajectory.terminations,
            truncations=trajectory.truncations,
            truncation_values=trajectory.truncation_values,
            mask=trajectory.policy_lags < learner.max_policy_lag,
        )


def torch_updates(ours: Update, precision: str, compiled: Sequence[bool]) -> list[Any]:
    """The PyTorch peer with our parameters and our batch; one TorchUpdate for each of `compiled`."""
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.peers.torch_update import TorchInputs, TorchPolicy, TorchUpdate, to_tensors

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    trajectory, batch = ours.loss_inputs()
    seen, network = trajectory.observations, ours.config.network
    window = make_window(glyph_table(), 0.0, 1.0)
    images = jax.jit(lambda chars, colors: draw(window(chars, colors)).astype(jnp.uint8).transpose(0, 3, 1, 2))
    frames = images(*(seen[name].reshape(-1, *seen[name].shape[2:]) for name in ("chars", "colors")))
    drawn = frames.reshape(*trajectory.is_first.shape, *frames.shape[1:])
    core_state = trajectory.initial_core_state[0][0]
    inputs = TorchInputs(drawn, seen["vector_obs"], seen["message"], trajectory.is_first, core_state)
    inputs, batch = to_tensors(inputs, device), to_tensors(batch, device)
    updates = []
    for through_compiler in compiled:
        policy = TorchPolicy(network, inputs.vector_obs.shape[-1], inputs.message.shape[-1], ours.policy.num_actions)
        policy.load(ours.state.params)
        updates.append(TorchUpdate(policy.to(device), inputs, batch, ours.config.learner, precision, through_compiler))
    return updates


def flops_per_frame(params: PyTree, config: Config) -> int:
    """FLOPs of one frame's update: every product forward, and backward once for its kernel and once for its input."""
    first = ("conv_0", "vector_0", "message_0")  # need no gradient of their input
    positions, side = {}, IMAGE_SIDE
    for i, (_, size, stride) in enumerate(CONV_LAYERS[config.network.encoder_subtype]):
        side = (side - size) // stride + 1
        positions[f"conv_{i}"] = side**2
    total = 0
    for path, kernel in jax.tree_util.tree_leaves_with_path(params["params"]):
        if kernel.ndim > 1:
            layer = path[-2].key
            total += 2 * math.prod(kernel.shape) * positions.get(layer, 1) * (2 if layer in first else 3)
    return total


def matrix_product(precision: str) -> tuple[Callable[[], Any], int]:
    """Some large products of square matrices: what makes and waits for them, warmed up, and their FLOPs."""
    size, count = sized(8192 if jax.default_backend() == "gpu" else 3072, 256), 5
    dtype = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
    one, other = jax.random.normal(jax.random.key(0), (2, size, size), dtype)
    algorithm = {"float32": "highest", "tf32": "tensorfloat32"}.get(precision)
    product = functools.partial(jax.jit(functools.partial(jnp.matmul, precision=algorithm)), one, other)

    def multiply() -> None:
        jax.block_until_ready([product() for _ in range(count)])

    multiply()
    return multiply, count * 2 * size**3


@dataclasses.dataclass
class Compilations:
    count: int = 0

    def note(self, event: str, duration_secs: float, **_: Any) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def count_compilations() -> Iterator[Compilations]:
    """Counts what JAX compiles meanwhile."""
    compilations = Compilations()
    jax.monitoring.register_event_duration_secs_listener(compilations.note)
    try:
        yield compilations
    finally:
        jax.monitoring.unregister_event_duration_listener(compilations.note)


class Peers(NamedTuple):
    """PyTorch's side: what to call for an update and a wait, the loss before any, and what went wrong."""

    runs: Mapping[str, Callable[[], Any]]
    loss: float | None
    problems: Mapping[str, str]


def build_peers(ours: Update, precision: str) -> Peers:
    """Eager and compiled, warmed up; none without PyTorch. One that fails is left out, and its error kept."""
    if not util.find_spec("torch"):
        return Peers({}, None, {})
    names = ["torch_eager", "torch_compile"] if _TORCH_COMPILE.value else ["torch_eager"]
    updates = torch_updates(ours, precision, [name == "torch_compile" for name in names])
    loss, runs, problems = updates[0].loss().item(), {}, {}
    for name, update in zip(names, updates, strict=True):
        try:
            update.run(2)
            runs[name] = functools.partial(update.run, updates_per_call())
        except Exception as error:  # a compiler that is missing, memory that is short: the others are still worth it
            problems[name] = f"{type(error).__name__}: {error}"[:1000]
            print(f"{name} failed: {problems[name]}", flush=True)
    return Peers(runs, loss, problems)


def updates_per_call() -> int:
    """Where an update takes milliseconds, several are waited for together."""
    return 10 if jax.default_backend() == "gpu" else 1


def measure(batch_size: int, precision: str) -> dict[str, Any]:
    """One row: everything at a batch size, in turn."""
    ours = Update(config_of(batch_size, precision))
    peers = build_peers(ours, precision)
    loss = ours.run(1)
    ours.run(2)
    count, secs = updates_per_call(), sized(_SECS.value, 0.0)
    calls = {"ours": functools.partial(ours.run, count), **peers.runs}
    sides: dict[str, Callable[[], float]] = {
        name: functools.partial(measure_rate, call, count * batch_size, secs) for name, call in calls.items()
    }
    sides["matrix_product"] = functools.partial(measure_rate, *matrix_product(precision), secs / 4)
    with count_compilations() as compilations:
        rates = alternate(sides, num_repeats())
    peaks, flops = rates.pop("matrix_product"), flops_per_frame(ours.state.params, ours.config)
    row = {
        "frames_per_sec": {name: spread(values) for name, values in rates.items()},
        **{f"ratio_to_{name}": ratio(rates["ours"], rates[name]) for name in peers.runs},
        "fraction_of_peak": ratio([flops * rate for rate in rates["ours"]], peaks),
        "matrix_product_gflops_per_sec": spread([peak / 1e9 for peak in peaks]),
        "mflop_per_frame": flops / 1e6,
        "loss_ours": loss,
        "loss_torch": peers.loss,
        "compilations_while_measured": compilations.count,
        **{f"problem_{name}": problem for name, problem in peers.problems.items()},
    }
    print(
        f"{precision} {batch_size}: " + ", ".join(f"{n} {r['median']:,.0f}" for n, r in row["frames_per_sec"].items())
    )
    return row


def config_of(batch_size: int, precision: str) -> Config:
    config = sample_config(_REWARD_TYPE.value, batch_size)
    if precision == "float32":
        return config
    return dataclasses.replace(config, network=dataclasses.replace(config.network, precision=precision))


def main(argv: Sequence[str]) -> None:
    del argv
    batch_sizes = _BATCH_SIZES.value or sized(["1024", "4096"], ["64"])
    figures = {
        precision: {size: measure(int(size), precision) for size in batch_sizes} for precision in _PRECISIONS.value
    }
    write_report(JSON.value, figures)


if __name__ == "__main__":
    app.run(main)
