"""Gradient steps of a reward model on what was labelled so far, one at a time between the policy's updates."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from oni_jax import parallel
from oni_jax.config import RewardConfig
from oni_jax.rewards.dataset import DataSet, Rows
from oni_jax.types import Array, ArraySpec, ModelState, PyTree

ADAM_EPS = 1e-8

Noise = PyTree  # leaves [B, ...]
# loss(params, rows, noise) -> (mean loss, metrics); noise and rows (the data set's columns, and `place`, the rows'
# places in it) lead with the same axis.
LossFn = Callable[[PyTree, Mapping[str, Array], Noise], tuple[Array, Mapping[str, Array]]]


class Schedule:
    """When gradient steps are due: `burst` of them when labels come while few are held, then one an update.

    Args:
        burst: gradient steps; labels that come before all are made start them anew.
        few_labels: labels, or pairs, below which that holds.
    """

    # ONI: as published the policy waits for the whole burst. Here its steps follow the policy's updates one by one,
    # and fill the time in which an accelerator would wait for the games.
    def __init__(self, burst: int, few_labels: int):
        self._burst, self._few_labels = burst, few_labels
        self.num_owed = 0

    def labels_came(self, num_held: int) -> None:
        if num_held < self._few_labels:
            self.num_owed = self._burst

    def update_came(self, num_held: int) -> None:
        if num_held and num_held >= self._few_labels:
            self.num_owed = max(1, self.num_owed)


class RewardTrainer:
    """A data set, a schedule and one compiled gradient step, data-parallel over the learner's devices.

    Args:
        columns: of the data set.
        loss_fn: of a batch's share; pure.
        make_noise: (key, B) -> what `loss_fn` gets beside the rows.
        max_grad_norm: 0 turns clipping off.
        seed: of the batches and the noise; equal seeds and data give equal steps, on any number of devices.
        replicas: the devices; all there are when left out.
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
    ):
        replicas = replicas or parallel.Replicas()
        clip = optax.clip_by_global_norm(max_grad_norm) if max_grad_norm else optax.identity()
        self._optimizer = optax.chain(clip, optax.adam(config.reward_model_lr, eps=ADAM_EPS))
        self._schedule = Schedule(config.reward_model_gradient_steps_per_update, config.reward_model_few_labels)
        share = replicas.shard_size(config.reward_model_batch_size, "reward_model_batch_size")
        self._dataset = DataSet(columns, config.reward_dataset_size, replicas)
        self._seed = seed
        self._num_steps = 0
        self._num_given_way = 0  # rows that an earlier start had, and that were no longer held when it was saved
        # On the devices from the start: what comes from elsewhere would compile anew.
        self._metrics: Mapping[str, Array] = replicas.put(dict.fromkeys(("bad_steps", "bad_steps_in_row"), np.int32(0)))

        def step(
            before: tuple[ModelState, Mapping[str, Array]], columns: PyTree, position: Array, device: Array
        ) -> tuple[ModelState, Mapping[str, Array]]:
            state, counts = before
            num_rows, num_steps = position
            key = jax.random.fold_in(jax.random.key(seed), num_steps)
            batch_key, noise_key = jax.random.split(key)
            # Drawn for the whole batch on every device, so that their number changes nothing.
            batch = jax.random.randint(batch_key, (share * len(replicas),), 0, num_rows)
            drawn = (batch, make_noise(noise_key, batch.size))
            places, noise = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, device * share, share), drawn)
            rows = {"place": places, **{name: column[places] for name, column in columns.items()}}
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
        """Labelled rows that came; gradient steps fall due."""
        self._dataset.append(rows)
        self._schedule.labels_came(self._num_rows())

    def update_came(self) -> None:
        """The policy was updated."""
        self._schedule.update_came(self._num_rows())

    def _num_rows(self) -> int:
        """All that ever came."""
        return self._num_given_way + self._dataset.num_appended

    @property
    def num_owed(self) -> int:
        """Gradient steps that are due."""
        return self._schedule.num_owed if self._dataset.size else 0

    def train_step(self, state: ModelState) -> ModelState:
        """Makes one of the gradient steps that are due; none when none is.

        A bad one, whose loss or gradients are not finite, leaves the state as it is and is counted.
        """
        if not self.num_owed:
            return state
        position = np.array([self._dataset.size, self._num_steps], np.int32)
        counts = {name: self._metrics[name] for name in ("bad_steps", "bad_steps_in_row")}
        state, self._metrics = self._step((state, counts), self._dataset.on_devices(), position)
        self._num_steps += 1
        self._schedule.num_owed -= 1
        return state

    def metrics(self) -> Mapping[str, Array]:
        """Of the newest gradient step, and counts."""
        counts = {"gradient_steps": self._num_steps, "gradient_steps_due": self.num_owed}
        return {**self._metrics, **counts, "dataset_rows": self._num_rows()}

    def save(self) -> dict[str, np.ndarray]:
        """What the device's state does not hold."""
        rows = self._dataset.save() if self._dataset.size else {}
        counters = np.array([self._num_steps, self._schedule.num_owed, self._num_rows()])
        return {"counters": counters, **{f"rows_{name}": column for name, column in rows.items()}}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """The inverse of `save`, into a trainer that has no rows."""
        self._num_steps, self._schedule.num_owed, num_rows = (int(number) for number in saved["counters"])
        rows = {name.removeprefix("rows_"): x for name, x in saved.items() if name.startswith("rows_")}
        if rows:
            self._dataset.restore(rows)
        self._num_given_way = num_rows - self._dataset.num_appended
