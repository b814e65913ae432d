"""Import of published networks: a policy as a run to resume, a ranking model or a Preference Transformer."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from oni_jax.envs.registry import env_spec
from oni_jax.host.held_folders import held_folder
from oni_jax.host.reporting import report
from oni_jax.host.run_files import CHECKPOINTS, LOCK, saved_steps
from oni_jax.learner.loop import initial_key
from oni_jax.learner.update import make_optimizer
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.networks.policy import make_policy
from oni_jax.networks.registry import torchbeast_observations
from oni_jax.published.published import import_params
from oni_jax.published.shapes import encoder_settings, policy_settings
from oni_jax.published.state_dict import StateDict
from oni_jax.rewards.bk.preference_model import (
    PreferenceModel,
    PreferenceSettings,
    make_network,
    names_read,
    save_preference_model,
)
from oni_jax.rewards.oni.reward_model import RewardModel, save_reward_model
from oni_jax.rewards.registry import make_rewards
from oni_jax.rewards.trained import holds_trained
from oni_jax.runs.checkpointing import Checkpoints, Saved, check_shapes
from oni_jax.runs.experiment import experiment_folder, open_experiment, write_settings
from oni_jax.runs.kept import keep_files
from oni_jax.runs.plan import Plan, with_chosen_encoder
from oni_jax.runs.run import Run
from oni_jax.runs.shared_file import Shared
from oni_jax.runs.sharing import to_act, write_run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, given, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.training.loop import Progress
from oni_jax.training.parts import fresh_state
from oni_jax.types import ModelState, PyTree

UNFINISHED = ".importing"  # marks the folder of an import that runs, or was killed


class Normalisation(NamedTuple):
    """Statistics of a ranking model's raw scores over its training data."""

    mean: float
    variance: float
    quantiles: Mapping[float, float]  # level 0.05 ... 0.95 -> quantile of the normalised reward


def import_run(config: Config, policy: StateDict | None, classifier: StateDict | None) -> Config:
    """Makes a run of 0 steps with the imported networks and fresh moments; None: freshly initialised.

    Returns:
        The run's settings: `config`, with the network that the policy's shapes imply.

    Raises:
        UserError: the weights are of another network or task than the settings say, or there is a run already.
    """
    params = None
    if policy:
        params = import_params(policy.weights)
        found = policy_settings(params)
        for name, value in given(config.network).items():
            if value != found.get(name, value):
                raise UserError(f"--{name} {value}: the imported policy has {found[name]}; leave the flag out")
        config = with_values(config, found)
    config = with_chosen_encoder(config)
    folder = experiment_folder(config)
    path = os.path.join(folder, CHECKPOINTS)
    _check_new(folder)
    with open_experiment(config):
        _check_new(folder)  # another program may have made it just now
        saved = _fresh_run(config, params, classifier)
        checkpoints = Checkpoints(path)
        checkpoints.save(0, saved)
        checkpoints.close()
        if not os.path.isdir(os.path.join(path, "0")):
            raise UserError(f"{path} can't be written; choose another --train_dir")
        write_settings(config, folder)
        keep_files(Plan(config), folder)
    return config


def import_reward_model(folder: str, ranking: StateDict, normalisation: Normalisation, source: str) -> NetworkConfig:
    """Writes a ranking model in the format of launch.train_reward. Returns its encoder's settings.

    Raises:
        UserError: the weights are of no such network, or there is a reward model already.
    """
    params = import_params(ranking.weights)
    network = with_values(NetworkConfig(), encoder_settings(params))
    observations = env_spec(EnvConfig(), torchbeast_observations(network)).observations
    zeros = {name: jnp.zeros((1, *array.shape), array.dtype) for name, array in observations.items()}
    _check_fits("the ranking model", params, jax.eval_shape(make_ranking_network(network).init, initial_key(0), zeros))
    with held_folder(folder, "experiment", above="train_dir"):
        if holds_trained(folder):
            raise UserError(f"{folder} holds a reward model already; choose another --experiment")
        save_reward_model(folder, 0, RewardModel(network, params, *normalisation), {"imported_from": source})
    return network


def import_preferences(folder: str, transformer: StateDict, env: EnvConfig, horizon: int, source: str) -> None:
    """Writes a Preference Transformer in the format of launch.train_potential.

    Args:
      folder: folder to write to.
      transformer: its weights.
      env: an environment that it values.
      horizon: steps of the segments that it was trained on.
      source: origin of the weights, for notes.

    Raises:
        UserError: the weights are of no such network, or of another world, or the folder holds a network already.
    """
    params = import_params(transformer.weights)
    layers = params["params"]
    spec = env_spec(env)
    num_actions = len(layers["action"]["embedding"])
    if num_actions != spec.num_actions:
        raise UserError(f"--root_env {env.root_env}: has {spec.num_actions} actions; the network has {num_actions}")
    max_time, width = layers["time"]["embedding"].shape
    hidden_size, feed_forward = (layer["kernel"].shape[1] for layer in (layers["encoder"]["dense"], layers["hidden_0"]))
    settings = PreferenceSettings(
        "bk_encoder", hidden_size, num_actions, horizon, width, feed_forward, max_time, is_scaled=False
    )
    names, steps = names_read(settings, spec), jnp.zeros((1, horizon), jnp.int32)
    states = {name: jnp.zeros((1, horizon, *spec.observations[name].shape), jnp.uint8) for name in names}
    wanted = jax.eval_shape(make_network(settings, spec).init, initial_key(0), states, steps, steps)
    _check_fits("the Preference Transformer", params, wanted, "; choose the --root_env that it was trained on")
    with held_folder(folder, "experiment", above="train_dir"):
        if holds_trained(folder):
            raise UserError(f"{folder} holds a trained network already; choose another --experiment")
        save_preference_model(folder, 0, PreferenceModel(settings, params), {"imported_from": source})


def import_shared(path: str, config: RunConfig, trust_code: bool = False) -> Config:
    """Makes a run of a file of `launch.export`, which goes on where that one was, with fresh moments of the optimizer.

    Returns:
        The run's settings.

    Raises:
        UserError: the file can't be used, or there is a run already.
    """
    folder = os.path.abspath(os.path.join(config.train_dir, config.experiment))
    _check_empty(folder)
    with held_folder(folder, "experiment", above="train_dir"):
        _check_empty(folder)  # another program may have filled it just now
        _clear(folder)
        unfinished = os.path.join(folder, UNFINISHED)
        with open(unfinished, "wb"):
            pass
        try:
            imported = write_run(path, folder, trust_code, _resumable).config
        except BaseException:  # an interruption, too
            _clear(folder)
            raise
        os.remove(unfinished)
        return imported


def _clear(folder: str) -> None:
    for name in sorted(_content(folder), key=UNFINISHED.__eq__):  # the mark last: this may be ended as well
        there = os.path.join(folder, name)
        shutil.rmtree(there) if os.path.isdir(there) else os.remove(there)


def _resumable(shared: Shared, run: Run) -> Saved:
    """Returns the checkpoint of a run that is trained further, where that is possible here."""
    acting = to_act(shared, run)
    try:
        state = _fresh_run(run.plan.config, None, None).state  # fails where the rewards can't be made
        if "reward_state" not in acting.state:
            raise UserError("the file was written without its rewards")
    except UserError as error:
        report(f"{run.folder}: can be played, but not trained further: {error}")
        return acting
    progress = dataclasses.asdict(Progress(env_steps=shared.env_steps))
    return Saved(state._replace(**acting.state), acting.reward, progress)


def _content(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if name != LOCK] if os.path.isdir(folder) else []


def _check_empty(folder: str) -> None:
    """Raises UserError: the folder holds more than what a killed import left."""
    if (content := _content(folder)) and UNFINISHED not in content:
        raise UserError(f"{folder} is there already; choose another --experiment")


def _check_new(folder: str) -> None:
    if saved_steps(folder):
        raise UserError(f"{folder} holds a run already; choose another --experiment")


def _fresh_run(config: Config, params: PyTree | None, classifier: StateDict | None) -> Saved:
    """Returns the checkpoint of 0 steps."""
    plan = Plan(config)
    network = dataclasses.replace(config.network, precision="float32")  # weights are; `auto` is chosen when it trains
    policy, rewards = make_policy(network, plan.policy_spec), make_rewards(config, plan.world_spec)
    state = fresh_state(config.run.seed, policy, plan.world_spec, rewards, make_optimizer(config.learner))
    if params is not None:
        _check_fits("the policy", params, state.params, "; choose the --root_env that it was trained on")
        state = state._replace(params=params)
    if classifier:
        if not isinstance(state.reward_state, ModelState):
            raise UserError("--reward holds a message classifier, which --llm_reward_type online_cls_reward_model uses")
        imported = import_params(classifier.weights)
        _check_fits("the classifier", imported, state.reward_state.params)
        state = state._replace(reward_state=state.reward_state._replace(params=imported))
    return Saved(state, rewards.save(), dataclasses.asdict(Progress()))


def _check_fits(name: str, params: PyTree, wanted: PyTree, hint: str = "") -> None:
    try:
        check_shapes(params, wanted, "in the file")
    except ValueError as error:
        raise UserError(f"{name} does not fit: {error}{hint}") from None
