"""Intrinsic rewards of a run for steps of its evaluation: what training pays for the same steps, without learning."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from oni_jax.envs.base import record_dtype
from oni_jax.envs.registry import env_spec
from oni_jax.evaluation.intrinsic import Scorer, Scoring, Steps
from oni_jax.evaluation.players import Player
from oni_jax.ops.captions import running_counts
from oni_jax.ops.records import as_bytes
from oni_jax.rewards.registry import observations_read, reward_labels
from oni_jax.rewards.terms import Features, RewardSum
from oni_jax.runs.rewards import NoRewardError, RunRewards
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.types import Array, CaptionBatch, EnvSpec, PyTree, StepCaptions, Trajectory
from oni_jax.worlds.actors.batches import ActorPayload, make_unpack_fn, step_captions
from oni_jax.worlds.actors.exchange import policy_record_dtype

KEY = np.zeros(2, np.uint32)
OF_TRAINING = ("truncation_values", "behaviour_logits", "values", "policy_lags", "initial_core_state", "policy_params")


class _Steps(Trajectory):
    """A trajectory without what only training knows: to read that raises UserError."""

    def __getattribute__(self, name: str) -> Any:
        if name in OF_TRAINING:
            raise UserError(f"it reads the trajectory's {name}, which only training has")
        return super().__getattribute__(name)


class StepRewards(Scorer):
    """Some of a run's rewards.

    Of a trajectory they see all but OF_TRAINING, which the policy that acted computed.

    Args:
        run: the rewards.
        chosen: indices of them.
        spec: of the environments, with the observations that policy and rewards read.
    """

    def __init__(self, run: RunRewards, chosen: Sequence[int], spec: EnvSpec):
        rewards = run.rewards
        states = [rewards.states(run.state)[i] for i in chosen]
        self._rewards = RewardSum([rewards.terms[i] for i in chosen])
        self._state = states[0] if len(states) == 1 else tuple(states)
        self.labels = [rewards.labels[i] for i in chosen]
        self.spec = self._rewards.read_from(spec)
        self._policy_record = policy_record_dtype(spec.num_actions)
        unpack = make_unpack_fn(self.spec, record_dtype(spec), self._policy_record)

        def score(state: PyTree, payload: ActorPayload, features: Features) -> Array:
            return self._rewards.score(state, _Steps(*unpack(payload, np.int32(0))), features, KEY).rewards

        self._score = jax.jit(score)

    def score(self, steps: Steps) -> np.ndarray:
        policy_records = np.zeros(steps.actions.shape, self._policy_record)
        policy_records["action"] = steps.actions
        captions = step_captions(steps.records, steps.texts, steps.finals, self.spec.observations, steps.captions)
        payload = ActorPayload(as_bytes(steps.records), as_bytes(policy_records), steps.finals, ())
        return np.asarray(self._score(self._state, payload, self._rewards.prepare(captions)))


def load_scoring(train_dir: str, player: Player) -> Scoring:
    """Loads the rewards that a player was trained with, from its checkpoint, with the labels so far."""
    if not player.experiment:
        return Scoring()
    of = Run(os.path.join(train_dir, player.experiment))
    try:
        run = of.rewards(player.env_steps)
        spec = env_spec(player.env, observations_read(run.config))
    except NoRewardError:
        return Scoring()
    except UserError as error:
        return _unknown(of, str(error))
    if (captions := run.config.env.caption) != player.env.caption:
        return _unknown(of, f"it values captions of --caption {captions}, and these are {player.env.caption}")
    reasons = [_why_unknown(run, i) for i in range(len(run.rewards.terms))]
    chosen = [i for i, reason in enumerate(reasons) if not reason]
    not_reported = {label: reason for label, reason in zip(run.rewards.labels, reasons) if reason}
    return Scoring(StepRewards(run, chosen, spec) if chosen else None, not_reported)


def _unknown(run: Run, reason: str) -> Scoring:
    names = [own.reward.llm_reward_type for own in run.config.terms()]
    return Scoring(None, dict.fromkeys(reward_labels(names), reason))


def _why_unknown(run: RunRewards, index: int) -> str:
    """Returns why one of a run's rewards can't be computed; "": it can."""
    term = run.rewards.terms[index]
    is_labelled = any(annotation.question == term.question for annotation in run.annotations)
    knows_labels_alone = term.question >= 0 and not jax.tree.leaves(run.rewards.states(run.state)[index])
    unlabelled = "its label store holds no labels" if knows_labels_alone and not is_labelled else ""
    return term.reward.only_in_training or unlabelled


class EpisodeRewards:
    """Scores steps with the rewards of a run, without training them.

    Args:
      run: the rewards.
      num_at_once: steps scored together.

    Attributes:
      observations: names of those that the rewards read.
      labels: of the rewards that are summed.
      left_out: labels of those that only training knows, and why.
    """

    def __init__(self, run: RunRewards, num_at_once: int = 128):
        self._run, self._num_at_once = run, num_at_once
        read = (*run.rewards.other_observations, *run.rewards.final_observations)
        self.observations = list(dict.fromkeys(read))
        reasons = {label: own.only_in_training for label, own in zip(run.rewards.labels, run.rewards.rewards)}
        self.left_out = {label: reason for label, reason in reasons.items() if reason}
        self.labels = [label for label in reasons if label not in self.left_out]
        self._rows = [i for i, reason in enumerate(reasons.values()) if not reason]
        self._score = jax.jit(run.rewards.score)

    def of_steps(
        self,
        captions: Sequence[bytes],
        observations: Mapping[str, np.ndarray],
        counts: Sequence[int] = (),
        terminated: bool = False,
    ) -> np.ndarray:
        """Returns the sum of the rewards [L] float32 for L >= 1 steps, before the coefficients; see `_of_each`."""
        return self._of_each(captions, observations, counts, terminated).sum(axis=0)

    def _of_each(
        self,
        captions: Sequence[bytes],
        observations: Mapping[str, np.ndarray],
        counts: Sequence[int],
        terminated: bool,
    ) -> np.ndarray:
        """Returns the rewards [K, L] float32 for L >= 1 steps, before the coefficients.

        Args:
          captions: L + 1, before each action and at the end.
          observations: [L + 1, ...] each of `self.observations`.
          counts: episodic counts of the captions, L + 1; counted from the first one when left out.
          terminated: whether the last step terminated the episode.
        """
        num_steps = len(captions) - 1
        seen = np.array(counts or running_counts(captions), np.float32)
        parts = []
        for start in range(0, num_steps, self._num_at_once):
            # The last chunk is padded with the last caption.
            rows = np.minimum(np.arange(start, start + self._num_at_once + 1), num_steps)
            zeros = np.zeros((self._num_at_once, 1), np.float32)
            both = {name: x[rows][:, None] for name, x in observations.items()}
            fields: dict[str, Any] = dict.fromkeys(Trajectory._fields, zeros) | {
                "observations": both,
                "own_counts": seen[rows[:-1]][:, None],
                "caused_counts": seen[rows[1:]][:, None],
                "rewards": zeros,
                "terminations": (rows[1:] == num_steps)[:, None] & terminated,
                "truncations": zeros > 0,
                "final_observations": {name: x[1:] for name, x in both.items()},
            }
            own, caused = (_caption_batch([captions[row] for row in end]) for end in (rows[:-1], rows[1:]))
            own = own._replace(observations={name: x[:-1] for name, x in both.items()})
            caused = caused._replace(observations={name: x[1:] for name, x in both.items()})
            features = self._run.rewards.prepare(StepCaptions(own, caused))
            trajectory = Trajectory(**fields)
            scored = self._score(self._run.state, trajectory, features, np.zeros(2, np.uint32))
            parts.append(np.asarray(scored.rewards)[self._rows, :, 0])
        return np.concatenate(parts, axis=1)[:, :num_steps]

    def of_captions(
        self, captions: Sequence[bytes], observations: Mapping[str, np.ndarray], terminated: bool = False
    ) -> np.ndarray:
        """Returns the sum of the rewards [L + 1] for the captions that they are paid for, or that a step has led to."""
        rewards = self._of_each(captions, observations, (), terminated)
        own = [self._run.rewards.rewards[row].pays_for == "own" for row in self._rows]
        return np.sum([np.pad(x, (0, 1) if is_own else (1, 0)) for x, is_own in zip(rewards, own)], axis=0)


def _caption_batch(captions: Sequence[bytes]) -> CaptionBatch:
    unique = {caption: i for i, caption in enumerate(dict.fromkeys(captions))}
    return CaptionBatch(list(unique), np.array([[unique[caption]] for caption in captions], np.int32))
