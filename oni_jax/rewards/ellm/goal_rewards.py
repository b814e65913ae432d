"""The rewards of ELLM's goals by who suggests them: the world, an LLM, a model of it that learns, or a saved one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.envs.goals import BY_LLM, MODEL, Suggested
from oni_jax.networks.registry import find_encoder
from oni_jax.ops.captions import a_step_of_each
from oni_jax.rewards.ellm.ellm import MAX_ASKED, GoalReward, Matcher, Matches, SuggestedGoalReward
from oni_jax.rewards.ellm.goal_model import (
    FEATURES,
    KNOWN_WELL,
    CaptionReader,
    GoalModel,
    GoalNetwork,
    ObservationReader,
    Reader,
)
from oni_jax.rewards.embeddings.settings import make_memo
from oni_jax.rewards.registry import RewardContext
from oni_jax.rewards.trained import holds_trained, load_trained, reason, save_trained
from oni_jax.settings.annotation import JUDGE
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Array, CaptionBatch, ModelState, PyTree, StepCaptions


class ModelledGoalReward(SuggestedGoalReward):
    """Rewards goals that a model of an LLM suggests, and the LLM's goals.

    Args:
        model: learns from the answers.
        asks_unsure: what the model is unsure of is asked about, else what has no answer.
        given: see `SuggestedGoalReward`.
    """

    def __init__(self, model: GoalModel, asks_unsure: bool, *given: Any):
        super().__init__(*given)
        self.model, self._asks_unsure = model, asks_unsure
        self.other_observations = [name for name in model.reader.columns if name != FEATURES]

    @property
    def goal_model(self) -> Any:  # type: ignore
        return self.model.log_odds

    def init(self, key: Array) -> ModelState:
        return self.model.init(key)

    def acting(self, state: ModelState) -> PyTree:
        return self.model.use(state)

    def suggests(self, state: ModelState, answers: Sequence[Annotation]) -> Suggested | None:
        found = super().suggests(state, answers)
        return found and found._replace(model=self.model.with_params(state.params))

    def doubts(self, state: ModelState, asked: Sequence[bytes]) -> np.ndarray | None:
        inputs = [self.model.reader.of_item(item) for item in asked]
        known = [row for row in inputs if row is not None]
        return self.model.expected_wrong(known, state.params) if len(known) == len(asked) else None

    def observe(self, captions: StepCaptions) -> None:
        super().observe(captions)
        if self.other_observations:  # else the answers' texts say all
            steps = self._steps_of_items(captions.before)
            met = [item for item in steps if item in self._worths and not self.model.knows(item)]
            self._learn({item: self.model.reader.of_step(captions.before, steps[item]) for item in met})

    def _steps_of_items(self, captions: CaptionBatch) -> Mapping[bytes, int]:
        """Returns a step of each item of a batch."""
        steps = a_step_of_each(captions.index, len(captions.captions)).tolist()
        return dict(zip(map(self._item, captions.captions), steps))

    def _learn(self, inputs: Mapping[bytes, Mapping[str, np.ndarray] | None]) -> None:
        """Learns the answers to items whose inputs are there."""
        rows = {item: row for item, row in inputs.items() if row is not None}
        if rows:
            self.model.learn([*rows], [*rows.values()], [self._worths[item] for item in rows])

    def _add(self, matches: Matches) -> None:
        super()._add(matches)
        self._learn({item: self.model.reader.of_item(item) for item, _ in matches if not self.model.knows(item)})

    def _weights(self, unanswered: Mapping[bytes, int], captions: CaptionBatch) -> Mapping[bytes, float]:
        if not self._asks_unsure or self.model.params is None:
            return unanswered
        reader = self.model.reader
        if self.other_observations:
            steps = self._steps_of_items(captions)
            inputs = {item: reader.of_step(captions, steps[item]) for item in unanswered}
        else:
            inputs = {item: reader.of_item(item) for item in unanswered}
        known = {item: row for item, row in inputs.items() if row is not None}
        wrong = dict(zip(known, self.model.expected_wrong([*known.values()]).tolist()))
        weights = {item: count * wrong.get(item, 1.0) for item, count in unanswered.items()}
        return {item: weight for item, weight in weights.items() if weight > KNOWN_WELL * unanswered[item]}

    def steps_due(self) -> int:
        return self.model.steps_due()

    def train_step(self, state: ModelState) -> ModelState:
        return self.model.train(state)

    def metrics(self) -> Mapping[str, Array]:
        return {**super().metrics(), **self.model.metrics()}

    def save(self) -> Mapping[str, np.ndarray]:
        return {**super().save(), **self.model.save()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.model.restore(saved)


class FrozenGoalReward(GoalReward):
    """Rewards goals that a model suggests which learns no more.

    Args:
        model: of an LLM's answers.
        params: its parameters, the device state.
    """

    def __init__(self, model: GoalModel, params: PyTree):
        self._params, self._model, self.goal_model = params, model, model.log_odds

    def init(self, key: Array) -> PyTree:
        return self._params

    def acting(self, state: PyTree) -> PyTree:
        return state

    def suggests(self, state: PyTree, answers: Sequence[Annotation]) -> Suggested | None:
        return Suggested(model=self._model.with_params(state))


def save_goal_model(folder: str, params: PyTree, goals: Sequence[str], made_of: str) -> None:
    """Saves what a goal model has learnt, for `--reward_dir`. Raises UserError: it can't be written.

    Args:
        folder: new, or one that holds another.
        params: the model's parameters.
        goals: the environment's.
        made_of: whose answers, in words.
    """
    save_trained(folder, 1, params, {"goals": list(goals), "answers": made_of})


def make_frozen(context: RewardContext) -> FrozenGoalReward:
    """Makes the reward of a saved goal model. Raises UserError: it is damaged, or of another environment."""
    model, folder = make_goal_model(context), context.config.reward.reward_dir
    like = jax.eval_shape(model.init, jax.random.key(0)).params
    if not holds_trained(folder):
        raise UserError(f"--reward_dir {folder}: holds no goal model; launch.train_goals writes one")
    try:
        params, settings = load_trained(folder)
    except Exception as error:  # orbax raises many types
        raise UserError(f"--reward_dir {folder}: can't be read ({reason(error)}); train it again") from None
    shapes = [jax.tree.map(lambda x: (tuple(x.shape), str(x.dtype)), tree) for tree in (like, params)]
    if settings.get("goals") != list(context.spec.goals) or shapes[0] != shapes[1]:
        raise UserError(f"--reward_dir {folder}: is of another environment, or of another program's version")
    return FrozenGoalReward(model, jax.tree.map(jnp.asarray, params))


def make_goal_model(context: RewardContext) -> GoalModel:
    """Makes the goal model of an environment. Raises UserError: settings of the encoder that don't fit."""
    config, spec = context.config, context.spec
    environment = context.environment
    assert environment.device is not None
    env, encoder = environment.device(config.env).env, None  # type: ignore  # without the goals themselves
    if env.num_caption_features:
        reader: Reader = CaptionReader(env)
    else:
        shown = {name: array for name, array in env.spec.observations.items() if name in spec.observations}
        reader = ObservationReader(shown)
        network = dataclasses.replace(config.network, goal_conditioned=False, language_state=False)
        encoder = find_encoder(network).make(network, spec._replace(observations=shown))
    network = GoalNetwork(len(spec.goals), encoder)
    return GoalModel(reader, network, config.reward, config.run.seed, context.replicas, config.env.goals.table_size)


def make(context: RewardContext) -> GoalReward:
    """Makes the reward of the settings. Raises UserError: files or settings that can't be used."""
    settings = context.config.env.goals
    if settings.suggester not in BY_LLM:
        return GoalReward()
    if context.config.reward.reward_dir:
        return make_frozen(context)
    # One of several processes keeps the embeddings: all embed the same texts.
    keeps = not context.frozen and jax.process_index() == 0
    memo = make_memo(context.config, keeps) if settings.similarity == "embeddings" else None
    is_slow = context.config.reward.embeddings.kind == "server" and memo is not None
    matcher = Matcher(context.spec.goals, settings, memo)
    max_asked = min(MAX_ASKED, context.config.annotation.llm_max_backlog)
    given = context.prompt(), matcher, is_slow, memo, max_asked
    if settings.suggester == MODEL:
        annotation = context.config.annotation
        somebody_answers = annotation.llm_server_addr or annotation.answers == JUDGE
        return ModelledGoalReward(make_goal_model(context), bool(somebody_answers) and annotation.ask != "new", *given)
    return SuggestedGoalReward(*given)
