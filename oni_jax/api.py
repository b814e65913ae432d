"""The programs as functions: training, and what a finished or running training has learnt.

`import oni_jax` offers all of it, and imports JAX only when something needs it.
"""

import contextlib
import dataclasses
import functools
import numbers
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oni_jax.envs.episode_goals import goal_features, goal_names
from oni_jax.host.caches import keep_compiled_code
from oni_jax.host.files import open_regular
from oni_jax.host.plugins import load_plugins, with_plugins
from oni_jax.host.reporting import report
from oni_jax.host.run_files import METRICS, saved_steps, steps_are_done
from oni_jax.host.runtime import ChildError, StopRequest
from oni_jax.runs import run as runs
from oni_jax.runs.experiment import check_unchanged, experiment_folder
from oni_jax.runs.shared_file import shipped
from oni_jax.settings.config import Config, check_values, with_values_of
from oni_jax.settings.fields import UserError, nearest, settings, value_from_python
from oni_jax.settings.json_text import parsed_object
from oni_jax.settings.worlds import num_processes
from oni_jax.training.checks import check_run
from oni_jax.types import EVERYTHING, GOAL_FEATURES, EnvSpec

if TYPE_CHECKING:
    from oni_jax.envs.gymnasium_vector import GymnasiumVector
    from oni_jax.show.film import Film


def train(
    config: Config | None = None,
    *,
    stop: StopRequest | None = None,
    on_row: Callable[[Mapping[str, Any]], object] | None = None,
    **values: Any,
) -> "Run":
    """Trains an agent, or resumes the training of one, until a limit of its settings; the same as `launch.train`.

    In a script it belongs under `if __name__ == "__main__":`, since actor processes import the script. Ctrl-C saves
    and ends it.

    Args:
        config: settings; the defaults when left out.
        stop: a request from outside to save and end.
        on_row: is called with each row of metrics, as in metrics.jsonl, between updates. What it raises is raised here,
            after the run is saved.
        **values: settings by the names of the flags, as in `train(root_env="Catch-v0", llm_reward_type="none")`; with
            `plugin` also those that it brings. One that may hold several values takes a list, too.

    Returns:
        The run.

    Raises:
        UserError: bad input. The text says what to do.
        ChildError: an actor process or the annotation service died; a checkpoint is saved.
    """
    config = with_settings(config or Config(), values)
    stop, is_given = stop if stop is not None else StopRequest(), stop is not None
    stop.usr1_saves = config.run.on_sigusr1 == "save"
    # Read when JAX is imported; a plugin, which checks load, may compute.
    if config.devices.cpu_devices > 1 and "jax" not in sys.modules:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(config.devices.cpu_devices)
    check_run(config)
    check_unchanged(config)
    folder = experiment_folder(config)
    # Other hosts' processes may not see the folder; they wait for this one.
    if num_processes(config.devices) == 1 and steps_are_done(config.run, folder):
        steps = max(saved_steps(folder))
        report(f"{folder}: {steps:,} environment steps are done already; raise --train_for_env_steps")
        return Run(folder)
    report("starting: importing JAX and building the networks, some 10 s at the first start")
    stop.awaits("JAX is imported and the networks are built")
    from oni_jax.training import build  # imports JAX, which takes seconds: after the checks

    with contextlib.ExitStack() as stack:
        if not is_given and threading.current_thread() is threading.main_thread():  # only there can signals be handled
            stack.enter_context(stop.installed())
        given: dict[str, Any] = {"on_row": on_row} if on_row else {}
        build.run(config, stop, **given)
    return Run(folder)


def load_run(folder: str, env_steps: int | None = None, *, trust_code: bool = False) -> "Run":
    """Opens the run in a folder, which may still be training, or in a file of `launch.export`.

    Args:
        folder: <train_dir>/<experiment>; a file; or, where there is neither, a policy of the package by its name.
        env_steps: steps of the checkpoint to act, score and evaluate with; None: the newest that can be read.
        trust_code: plugins that a file brings may run.

    Raises:
        UserError: there is no run, or the file can't be used.
    """
    if os.path.isfile(folder) or (not os.path.exists(folder) and folder in shipped()):
        from oni_jax.runs.sharing import unpacked

        with contextlib.ExitStack() as stack:
            run = Run(stack.enter_context(unpacked(folder, trust_code)).folder, env_steps)
            weakref.finalize(run, stack.pop_all().close)
        return run
    run = Run(os.path.abspath(folder), env_steps)
    _ = run.config  # reports a wrong name
    return run


def make_vec(
    root_env: str, num_envs: int = 1, *, observations: Sequence[str] = (EVERYTHING,), **values: Any
) -> "GymnasiumVector":
    """Makes N environments of this process, as a `gymnasium.vector.VectorEnv`; NetHack's are stepped in C.

    Equal seeds of `reset` give equal episodes for equal actions. An ended episode is followed by the next one in the
    same step; `info` then has the last observations in `final_obs`, captions and statistics in `final_info`.

    Args:
        root_env: the task.
        num_envs: N.
        observations: names of those to show.
        **values: settings of the environment by the names of the flags, such as `view="map"`.

    Raises:
        UserError: bad input. The text says what to do.
    """
    from oni_jax.envs.base import record_dtype
    from oni_jax.envs.gymnasium_vector import GymnasiumVector
    from oni_jax.envs.registry import env_spec, make_vector_env
    from oni_jax.host.memory import GAME_BYTES, check_fits
    from oni_jax.runs.plan import Plan, with_chosen_env

    known = [field.name for field, _ in settings(_with_plugins(Config(), values).env)]
    for name in values.keys() - {*known}:
        raise UserError(f"{name}: there is no such setting of an environment{nearest(name, known)}")
    if not isinstance(num_envs, numbers.Integral) or isinstance(num_envs, bool) or num_envs < 1:
        raise UserError(f"num_envs is {num_envs!r}: must be a whole number, 1 or more")
    config = with_settings(Config(), {"llm_reward_type": "none", "root_env": root_env, **values})
    check_values(config.env)
    plan = Plan(with_chosen_env(config))
    env, spec = plan.config.env, env_spec(plan.config.env, observations)
    of_game = GAME_BYTES if root_env.startswith("NetHack") else 0
    row_bytes = 2 * record_dtype(spec).itemsize  # and that of the last observation
    check_fits({f"{num_envs:,} environments": num_envs * (of_game + row_bytes)}, "lower num_envs")
    make = functools.partial(make_vector_env, env, num_envs, first_index=0, observations=observations)
    return GymnasiumVector(make, spec, plan.environment.bounds(env), num_envs)


def with_settings(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns the settings with some replaced, by name, also by those that plugins bring.

    Raises:
        UserError: there is no such setting, it is of another type, or a list has not a value for each reward.
    """
    return with_values_of(_with_plugins(config, values), values)


def _with_plugins(config: Config, values: Mapping[str, Any]) -> Config:
    """Returns the settings with those that plugins bring; a plugin that can't be loaded is left to the run's check."""
    fields = {field.name: field for field, _ in settings(config)}
    plugin = value_from_python(fields["plugin"], values.get("plugin", config.env.plugin))
    try:
        load_plugins(plugin)
    except UserError:
        if values.keys() - fields.keys():  # the plugin may bring them
            raise
        return config
    return with_plugins(config, plugin)


def _whole(played: Any) -> Any:
    """Returns an evaluation that no lost actor has cut short. Raises ChildError."""
    if played.interrupted:
        raise ChildError(f"{played.interrupted} after {len(played.episodes)} of {played.num_episodes} episodes")
    return played


class Run:
    """A run: what it was trained with, what it recorded, and its policy and reward as a checkpoint holds them.

    Args:
        folder: folder of the run.
        env_steps: steps of the checkpoint; None: the newest that can be read. It is read when first needed.
    """

    def __init__(self, folder: str, env_steps: int | None = None):
        self.folder, self.env_steps, self._run = folder, env_steps, runs.Run(folder)
        self._core_state: Any = None
        self._num_envs = self._num_acts = 0

    def __repr__(self) -> str:
        return f"Run({self.folder!r}" + (f", env_steps={self.env_steps})" if self.env_steps is not None else ")")

    @property
    def config(self) -> Config:
        """The settings that it was started with last."""
        return self._run.config

    @property
    def spec(self) -> EnvSpec:
        """The observations and actions of its policy."""
        return self._pretrained.spec

    def act(
        self,
        observations: Any,
        is_first: Any = None,
        *,
        greedy: bool = False,
        seed: int = 0,
        goal: str | Sequence[str] = "",
    ) -> np.ndarray:
        """Chooses actions for N environments, and keeps the policy's recurrent state for their next step.

        Args:
            observations: array [N, ...] by the names in `spec.observations`: a mapping, or an array of records.
            is_first: [N] bool: an episode begins; when left out: at the first call, or the first with another N.
            greedy: the most probable actions; else they are drawn, as in training.
            seed: seed of the draws.
            goal: an agent's goal, or one for each environment: a key of --goal_key, or with --goal_input text
                any text. It takes the place of the observation `goal_features`, and may change at any step.

        Returns:
            Actions [N] int32.

        Raises:
            UserError: an observation is missing or of another shape, or there is no such goal.
        """
        import jax

        inputs = self._inputs(observations, goal)
        num_envs = len(next(iter(inputs.values())))
        if num_envs != self._num_envs:
            self._core_state, self._num_envs = self._pretrained.policy.initial_state(num_envs), num_envs
            is_first = np.ones(num_envs, bool) if is_first is None else is_first
        first = np.zeros(num_envs, bool) if is_first is None else np.asarray(is_first, bool)
        key = jax.random.fold_in(jax.random.key(seed), self._num_acts)
        self._num_acts += 1
        logits, self._core_state = self._apply(self._pretrained.params, inputs, self._core_state, first)
        actions = logits.argmax(-1) if greedy else jax.random.categorical(key, logits)
        return np.asarray(actions, np.int32)

    def score(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Returns the reward of captions, [len(texts)] float32, before episodic count and coefficient.

        Raises:
            UserError: the run learns from the environment's reward alone, or rewards no captions.
        """
        from oni_jax.evaluation.inspection import score_texts

        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        return score_texts(self._reward, self.folder, encoded) if encoded else np.zeros(0, np.float32)

    def metrics(self) -> dict[str, np.ndarray]:
        """Returns its metrics over time, [R] float64 each, NaN where a row lacks one; also `env_steps` and `hours`.

        Raises:
            UserError: it has no rows yet.
        """
        path = os.path.join(self.folder, METRICS)
        names: set[str] = set()
        with contextlib.suppress(OSError), open_regular(path) as file:
            for line in file:
                with contextlib.suppress(ValueError):  # damaged
                    names |= parsed_object(line).keys()
        run = self._run.metrics(names - {"env_steps", "secs"})
        return {"env_steps": run.env_steps, "hours": run.hours, **run.metrics}

    def evaluate(self, episodes: int = 256, **values: Any) -> Any:
        """Plays episodes that are the same for every policy and held out from training; see `launch.evaluate`.

        Args:
            episodes: their number.
            **values: settings of `launch.evaluate` by name, such as `policy="greedy"` or `root_env`, but for those of
                the checkpoint, of a comparison and of files.

        Returns:
            An `oni_jax.evaluation.results.Evaluation`, with `measures()`, `summaries()` and `success()`.

        Raises:
            UserError: bad input, or no such run or checkpoint.
            ChildError: an actor process was lost; its episodes would be missing.
        """
        return self._evaluated(episodes, values)[1]

    def evaluate_by_goal(self, episodes: int = 256, **values: Any) -> dict[str, Any]:
        """Plays the same episodes under each of the run's goals, as `launch.evaluate --by_goal` does.

        Args:
            episodes: their number, for each goal.
            **values: see `evaluate`.

        Returns:
            {goal: `oni_jax.evaluation.results.Evaluation`}, whose intrinsic returns are by the labels of every goal.

        Raises:
            UserError, ChildError: see `evaluate`; the run has one goal.
        """
        goals = goal_names(self._run.plan.config.env.episode_goal)
        if not goals:
            raise UserError(f"{self.folder} was trained for one goal: use evaluate()")
        return {goal: self._evaluated(episodes, {**values, "goal": goal}, by_goal=True)[1] for goal in goals}

    def film(self, which: str = "best", episodes: int = 16, **values: Any) -> "Film":
        """Plays episodes as `evaluate` does, and makes a film of one, which a notebook shows.

        Args:
            which: best, median or worst, by its return.
            episodes: their number.
            **values: see `evaluate`.

        Raises:
            UserError, ChildError: see `evaluate`.
        """
        from oni_jax.evaluation.recording import BEST, MEDIAN, WORST
        from oni_jax.show.film import film_of

        if which not in (BEST, MEDIAN, WORST):
            raise UserError(f"which is {which!r}: must be {BEST}, {MEDIAN} or {WORST}")
        return film_of(*self._evaluated(episodes, values), which)

    def _evaluated(self, episodes: int, values: dict[str, Any], by_goal: bool = False) -> tuple[Any, Any]:
        """Returns the player, and its evaluation; `by_goal`: with what the labels of every goal pay."""
        from oni_jax.evaluation.config import RANDOM, EvaluationConfig, check_evaluate
        from oni_jax.evaluation.players import chosen_players, evaluated_task, load_player, with_scoring
        from oni_jax.evaluation.program import play

        known = {field.name: field for field, _ in settings(EvaluationConfig())}
        for name in values.keys() - known:
            raise UserError(f"{name}: there is no such setting of an evaluation{nearest(name, known)}")
        values = {name: value_from_python(known[name], value) for name, value in values.items()}
        if others := values.keys() & {"train_dir", "experiment", "checkpoint", "compare", "compare_checkpoint"}:
            raise UserError(f"{', '.join(sorted(others))}: evaluate another `load_run(folder, env_steps)` instead")
        if files := values.keys() & {"by_goal", "json", "csv", "record", "record_format", "recordings_dir"}:
            raise UserError(f"{', '.join(sorted(files))}: no files are written here; launch.evaluate writes them")
        train_dir, experiment = os.path.split(self.folder)
        config = EvaluationConfig(train_dir=train_dir, experiment=experiment, episodes=episodes, **values)
        check_evaluate(config)
        keep_compiled_code()
        task = evaluated_task(config)
        if config.policy == RANDOM:
            player = chosen_players(config, task, None, config.checkpoint)[0]
            return player, _whole(play(config, player))
        player = with_scoring(load_player(config, experiment, self.env_steps, task))
        config = dataclasses.replace(config, by_goal=by_goal)
        return player, _whole(play(config, player))._replace(labels_by=self._run.labels_by())

    @functools.cached_property
    def _pretrained(self) -> Any:
        keep_compiled_code()
        return self._run.policy(env_steps=self.env_steps)

    @functools.cached_property
    def _apply(self) -> Any:
        import jax

        policy = self._pretrained.policy

        def apply(params: Any, observations: Any, core_state: Any, is_first: Any) -> tuple[Any, Any]:
            one_step = {name: x[None] for name, x in observations.items()}
            output, core_state = policy.apply(params, one_step, core_state, is_first[None])
            return output.logits[0], core_state

        return jax.jit(apply)

    @functools.cached_property
    def _reward(self) -> Any:
        keep_compiled_code()
        return self._run.rewards(self.env_steps)

    def _goal_features(self, goal: str | Sequence[str], num_envs: int) -> np.ndarray:
        goals, settings = [goal] if isinstance(goal, str) else list(goal), self._run.plan.config.env.episode_goal
        if len(goals) not in (1, num_envs):
            raise UserError(f"goal: {len(goals)} for {num_envs} environments; give one, or one for each")
        return np.stack([goal_features(settings, x) for x in goals * (num_envs if len(goals) == 1 else 1)])

    def _inputs(self, observations: Any, goal: str | Sequence[str] = "") -> dict[str, np.ndarray]:
        inputs = {}
        for name, expected in self.spec.observations.items():
            if goal and name == GOAL_FEATURES:
                continue
            try:
                inputs[name] = np.asarray(observations[name])
            except (KeyError, ValueError, IndexError, TypeError):
                names = ", ".join(self.spec.observations)
                hint = "; say its goal by goal=" if name == GOAL_FEATURES else ""
                raise UserError(f"observations: {name} is missing; the policy reads {names}{hint}") from None
            if inputs[name].shape[1:] != expected.shape:
                shape = ", ".join(map(str, ("N", *expected.shape)))
                raise UserError(f"observations: {name} is {list(inputs[name].shape)}; must be [{shape}]")
        if goal:
            inputs[GOAL_FEATURES] = self._goal_features(goal, len(next(iter(inputs.values()))))
        return inputs
