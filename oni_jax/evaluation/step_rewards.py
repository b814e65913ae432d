"""Scores a run's rewards for steps outside training: what training pays for the same steps, without learning."""

import functools
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from oni_jax.envs.base import record_dtype
from oni_jax.envs.goals import BY_LLM
from oni_jax.envs.registry import env_spec
from oni_jax.evaluation.intrinsic import Scorer, Steps
from oni_jax.ops.records import as_bytes
from oni_jax.rewards.registry import observations_read, term_labels
from oni_jax.rewards.terms import EVERY_GOAL, Features, RewardSum
from oni_jax.runs.rewards import NoRewardError, RunRewards
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError, counted
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import GOAL_REWARD, Array, EnvSpec, PyTree, Trajectory
from oni_jax.worlds.actors.batches import ActorPayload, make_unpack_fn, step_captions
from oni_jax.worlds.actors.exchange import policy_record_dtype

KEY = np.zeros(2, np.uint32)
OF_TRAINING = ("truncation_values", "behaviour_logits", "values", "policy_lags", "initial_core_state", "policy_params")


class Scoring(NamedTuple):
    """Rewards that a player was trained with."""

    scorer: Scorer | None = None  # None: there is nothing to score
    not_reported: Mapping[str, str] = {}  # labels of those that can't be computed here, and why


class _Steps(Trajectory):
    """A trajectory without what only training knows: to read that raises UserError."""

    def __getattribute__(self, name: str) -> Any:
        if name in OF_TRAINING:
            raise UserError(f"it reads the trajectory's {name}, which only training has")
        return super().__getattribute__(name)


class StepScorer(Scorer):
    """Some of a run's rewards.

    Of a trajectory they see all but OF_TRAINING, which the policy that acted computed.

    Args:
        run: the rewards.
        chosen: indices of them.
        spec: of the environments, with the observations that policy and rewards read.
        name: of the run.
        is_masked: of an agent of several goals, a step pays what its episode's goal says; else what each goal says.
    """

    def __init__(self, run: RunRewards, chosen: Sequence[int], spec: EnvSpec, name: str = "", is_masked: bool = True):
        rewards = run.rewards
        states = [rewards.states(run.state)[i] for i in chosen]
        terms = [rewards.terms[i] for i in chosen]
        self._rewards = RewardSum(terms if is_masked else [term._replace(goal=EVERY_GOAL) for term in terms])
        self.under_all_goals = functools.partial(StepScorer, run, chosen, spec, name, is_masked=False)
        self._state = states[0] if len(states) == 1 else tuple(states)
        self.labels = [rewards.labels[i] for i in chosen]
        self.coeffs = np.array([term.coeff for term in self._rewards.terms])
        self.pays_before = np.array([reward.pays_for == "before" for reward in self._rewards.rewards])
        self.spec = self._rewards.read_from(spec)
        self.source, self.problem = f"by {name} at {counted(run.env_steps, 'step')}", ""
        self._policy_record = policy_record_dtype(spec.num_actions)
        unpack = make_unpack_fn(self.spec, record_dtype(spec), self._policy_record)

        def score(state: PyTree, payload: ActorPayload, features: Features) -> Array:
            return self._rewards.score(state, _Steps(*unpack(payload, np.int32(0))), features, KEY).rewards

        self._score = jax.jit(score)

    def score(self, steps: Steps) -> np.ndarray:
        try:
            if not self.problem:
                return self._scored(steps)
        except UserError as error:
            self.problem = str(error)
        except Exception as error:  # a plugin's error: the episodes are not lost with it
            traceback.print_exc()
            self.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        return np.full((len(self.labels), *steps.actions.shape), np.nan, np.float32)

    def _scored(self, steps: Steps) -> np.ndarray:
        policy_records = np.zeros(steps.actions.shape, self._policy_record)
        policy_records["action"] = steps.actions
        captions = step_captions(steps.records, steps.texts, steps.finals, self.spec.observations, steps.captions)
        payload = ActorPayload(as_bytes(steps.records), as_bytes(policy_records), steps.finals, ())
        return np.asarray(self._score(self._state, payload, self._rewards.prepare(captions)))


def load_scoring(run: Run, env: EnvConfig, env_steps: int | None) -> Scoring:
    """Loads the rewards that a run's policy was trained with; as `read_scoring`, but says why they can't be read."""
    try:
        return read_scoring(run, env, env_steps)
    except UserError as error:
        return _unknown(run, str(error))


def read_scoring(run: Run, env: EnvConfig, env_steps: int | None) -> Scoring:
    """Reads the rewards of a run's checkpoint, with the labels so far, to score steps in an environment.

    Raises:
        UserError: the rewards can't be read, or the environment does not show what they read.
    """
    try:
        known = run.rewards(env_steps)
    except NoRewardError:
        return Scoring()
    spec = env_spec(env, observations_read(known.config))
    if (captions := known.config.env.caption) != env.caption:
        return _unknown(run, f"it values captions of --caption {captions}, and these are {env.caption}")
    reasons = [_why_unknown(known, i, env) for i in range(len(known.rewards.terms))]
    chosen = [i for i, reason in enumerate(reasons) if not reason]
    not_reported = {label: reason for label, reason in zip(known.rewards.labels, reasons) if reason}
    return Scoring(StepScorer(known, chosen, spec, run.name) if chosen else None, not_reported)


def _unknown(run: Run, reason: str) -> Scoring:
    return Scoring(None, dict.fromkeys(term_labels(run.config), reason))


def _why_unknown(run: RunRewards, index: int, env: EnvConfig) -> str:
    """Returns why one of a run's rewards can't be computed in an environment; "": it can."""
    term, learnt, played = run.rewards.terms[index], run.config.env.goals.suggester, env.goals.suggester
    if GOAL_REWARD in term.reward.final_observations and learnt in BY_LLM and learnt != played:
        return f"it pays goals of --goal_suggester {learnt}, and these are of {played}"
    is_labelled = any(annotation.question == term.question for annotation in run.annotations)
    knows_answers_alone = term.reward.reads_answers and not jax.tree.leaves(run.rewards.states(run.state)[index])
    is_unlabelled = term.question >= 0 and knows_answers_alone and not is_labelled
    not_yet = term.reward.learning.why_unknown(run.rewards.states(run.state)[index])
    return term.reward.only_in_training or not_yet or ("its label store holds no labels" if is_unlabelled else "")
