"""Gradient steps of a reward model on the labels so far, one at a time between the policy's updates."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from oni_jax import parallel
from oni_jax.rewards.dataset import DataSet, Rows
from oni_jax.settings.rewards import RewardConfig
from oni_jax.types import Array, ArraySpec, ModelState, PyTree

ADAM_EPS = 1e-8

Noise = PyTree  # leaves [B, ...]
# loss(params, rows, noise) -> (mean loss, metrics). rows: the data set's columns, and `row_index` into it. The first
# axis of rows and noise is the batch.
LossFn = Callable[[PyTree, Mapping[str, Array], Noise], tuple[Array, Mapping[str, Array]]]


class Schedule:
    """Schedule of gradient steps: `burst` more each time that labels come while few are held, then one an update.

    Args:
        burst: gradient steps; they add to those that are due already.
        few_labels: number of labels, or pairs, below which new ones start a burst.
    """

    # ONI: the published policy waits for the whole burst. Here its steps alternate with the policy's updates, and fill
    # the time in which an accelerator would idle.
    def __init__(self, burst: int, few_labels: int):
        self._burst, self._few_labels = burst, few_labels
        self.num_due = 0

    def on_labels(self, num_new: int, num_held: int) -> None:
        if num_held < self._few_labels:
            self.num_due += self._burst

    def on_update(self, num_held: int) -> None:
        if num_held and num_held >= self._few_labels:
            self.num_due = max(1, self.num_due)


class Passes(Schedule):
    """Schedule of a small model, which learns in seconds: new labels bring steps by their number and their fraction.

    Args:
        num_passes: times that a label is drawn when it is new, on average.
        batch_size: labels in a gradient step.
        num_steps: more gradient steps where all labels are new; fewer where fewer are.
    """

    def __init__(self, num_passes: int, batch_size: int, num_steps: int):
        super().__init__(0, 0)
        self._num_passes, self._batch_size, self._num_steps = num_passes, batch_size, num_steps

    def on_labels(self, num_new: int, num_held: int) -> None:
        self.num_due += -(-num_new * self._num_passes // self._batch_size)
        self.num_due += -(-num_new * self._num_steps // num_held)


class RewardTrainer:
    """A data set, a schedule and one compiled gradient step, data-parallel over the learner's devices.

    Args:
        columns: of the data set.
        loss_fn: of a shard of the batch; pure.
        make_noise: (key, B) -> `noise` of `loss_fn`.
        max_grad_norm: 0 turns clipping off.
        seed: of the batches and the noise; equal seeds and data give equal steps, on any number of devices.
        replicas: the devices; all there are when left out.
        schedule: of the gradient steps; that of the settings when left out.
    """

    def __init__(
        self,
        columns: Mapping[str, ArraySpec],
        loss_fn: LossFn,
        config: RewardConfig,
        seed: int,
        make_noise: Callable[[Array, int], Noise] = lambda key, count: (),
        max_grad_norm: float = 0.0,
        replicas: parallel.Replicas | None = None,
        schedule: Schedule | None = None,
    ):
        replicas = replicas or parallel.Replicas()
        clip = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm else optax.identity()
        self._optimizer = optax.chain(clip, optax.adam(config.model.learning_rate, eps=ADAM_EPS))
        self._schedule = schedule or Schedule(config.model.gradient_steps_per_update, config.model.few_labels)
        shard_size = replicas.shard_size(config.model.batch_size, "reward_model_batch_size")
        self._dataset = DataSet(columns, config.model.dataset_size, replicas)
        self._seed = seed
        self._num_steps = 0
        self._num_replaced = 0  # rows that the checkpoint counts, but that were replaced before it was saved
        # Metrics lie on the devices from the start: another sharding would compile the step again.
        self._metrics: Mapping[str, Array] = replicas.put(dict.fromkeys(("bad_steps", "bad_steps_in_row"), np.int32(0)))

        def step(
            before: tuple[ModelState, Mapping[str, Array]], columns: PyTree, position: Array, device: Array
        ) -> tuple[ModelState, Mapping[str, Array]]:
            state, counts = before
            num_rows, num_steps = position
            key = jax.random.fold_in(jax.random.key(seed), num_steps)
            batch_key, noise_key = jax.random.split(key)
            # Drawn for the whole batch on every device, so that the number of devices changes nothing.
            batch = jax.random.randint(batch_key, (shard_size * len(replicas),), 0, num_rows)
            drawn = (batch, make_noise(noise_key, batch.size))
            start = device * shard_size
            index, noise = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, shard_size), drawn)
            rows = {"row_index": index, **{name: column[index] for name, column in columns.items()}}
            loss_and_grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, rows, noise)
            (loss, metrics), grads = parallel.mean(loss_and_grads)
            updates, opt_state = self._optimizer.update(grads, state.opt_state, state.params)
            grad_norm = optax.tree.norm(grads)
            bad = ~(jnp.isfinite(loss) & jnp.isfinite(grad_norm))
            stepped = ModelState(optax.apply_updates(state.params, updates), opt_state)
            counts = {
                "bad_steps": counts["bad_steps"] + bad,
                "bad_steps_in_row": jnp.where(bad, counts["bad_steps_in_row"] + 1, 0),
            }
            state = jax.tree.map(lambda new, old: jnp.where(bad, old, new), stepped, state)
            return state, {**metrics, "grad_norm": grad_norm, **counts}

        self._replicas, self._step = replicas, replicas.stepper(step)

    def init(self, params: PyTree) -> ModelState:
        return self._replicas.put(ModelState(params, self._optimizer.init(params)))

    def append(self, rows: Rows) -> None:
        """Appends labelled rows, and schedules gradient steps."""
        before = self._num_rows()
        self._dataset.append(rows)
        self._schedule.on_labels(self._num_rows() - before, self._num_rows())

    def on_update(self) -> None:
        """Schedules gradient steps after an update of the policy."""
        self._schedule.on_update(self._num_rows())

    def _num_rows(self) -> int:
        """Returns the number of rows ever appended."""
        return self._num_replaced + self._dataset.num_appended

    @property
    def num_due(self) -> int:
        """Number of gradient steps that are due."""
        return self._schedule.num_due if self._dataset.size else 0

    def train_step(self, state: ModelState) -> ModelState:
        """Makes one of the gradient steps that are due, if any.

        A bad one, whose loss or gradients are NaN or inf, leaves the state as it is and is counted.
        """
        if not self.num_due:
            return state
        position = np.array([self._dataset.size, self._num_steps], np.int32)
        counts = {name: self._metrics[name] for name in ("bad_steps", "bad_steps_in_row")}
        state, self._metrics = self._step((state, counts), self._dataset.on_devices(), position)
        self._num_steps += 1
        self._schedule.num_due -= 1
        return state

    def metrics(self) -> Mapping[str, Array]:
        """Returns scalars of the newest gradient step, and counts."""
        counts = {"gradient_steps": self._num_steps, "gradient_steps_due": self.num_due}
        return {**self._metrics, **counts, "dataset_rows": self._num_rows()}

    def save(self) -> dict[str, np.ndarray]:
        """Returns the rows and the counters, which the device's state does not hold."""
        rows = self._dataset.save() if self._dataset.size else {}
        counters = np.array([self._num_steps, self._schedule.num_due, self._num_rows()])
        return {"counters": counters, **{f"rows_{name}": column for name, column in rows.items()}}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned into a trainer without rows."""
        self._num_steps, self._schedule.num_due, num_rows = (int(number) for number in saved["counters"])
        rows = {name.removeprefix("rows_"): x for name, x in saved.items() if name.startswith("rows_")}
        if rows:
            self._dataset.restore(rows)
        self._num_replaced = num_rows - self._dataset.num_appended
