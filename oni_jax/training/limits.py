"""The bottleneck of a run, and a flag that would help."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.envs.event_captions import EVENT
from oni_jax.envs.registry import env_spec
from oni_jax.runs.plan import Machine, Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.training.sizes import free_cores
from oni_jax.worlds.actors.pool import num_workers

BUSY = 0.25  # a part that waits for less of its time than this is busy


class Limit(NamedTuple):
    """The bottleneck of a run: the part that the other parts wait for."""

    part: str
    advice: str  # a flag or another change that would help


def find_limit(waits: Mapping[str, float], plan: Plan) -> Limit | None:
    """Returns the bottleneck; None without the learner's fraction of waiting.

    Args:
        waits: metrics of that name.
        plan: of the run, with its sizes and this process's machine.
    """
    config, machine = plan.config, plan.machine
    assert machine
    if "learner_waits_fraction" not in waits:
        return None
    if waits.get("learner_looks_up_fraction", 0.0) > BUSY:
        return Limit("looking up rewards", "--potential_workers, if a potential is code")
    if waits.get("captions_read_fraction", 0.0) > BUSY:
        has_shorter = plan.environment.labels_events and config.env.caption != EVENT and _may_label_events(config.env)
        advice = "--caption event" if has_shorter else "an environment with fewer different captions, or a faster core"
        return Limit("reading captions on the host", advice)
    plays = "actors_wait_fraction" in waits
    if not machine.num_accelerators:
        cores = machine.num_cores
        if not plays and config.devices.cpu_devices < cores:
            return Limit("one core", f"--cpu_devices {cores}")
        return Limit("the cores, which all parts share", "a smaller --hidden_size, or an accelerator")
    if not plays or waits["learner_waits_fraction"] < BUSY:
        return Limit("learning", _more_learning(config, machine))
    if waits["actors_wait_fraction"] < BUSY:
        return Limit("the environments", _more_environments(config, machine))
    if waits.get("inference_waits_fraction", 0.0) < BUSY:
        return Limit("inference", "--num_envs_per_worker: larger groups cost fewer calls; or more --num_answerers")
    return Limit("the way to the policy and back", "--num_envs_per_worker: more environments play meanwhile")


def _may_label_events(env: EnvConfig) -> bool:
    """Returns whether `--caption event` would be accepted: there are events, and no goals are suggested for states."""
    try:
        env_spec(dataclasses.replace(env, caption=EVENT))
    except UserError:
        return False
    return True


def _more_learning(config: Config, machine: Machine) -> str:
    if config.network.precision == "float32":
        return "--precision bfloat16"
    used = config.devices.learner_devices or machine.num_accelerators
    if used < machine.num_accelerators:
        return f"--learner_devices {machine.num_accelerators}"
    return "another accelerator, or a smaller network"


def _more_environments(config: Config, machine: Machine) -> str:
    fitting = machine.num_cores - free_cores(config.actors, machine)
    if num_workers(config.actors) < fitting:
        return f"--num_workers {fitting}"
    if config.env.root_env.startswith("NetHack") and config.env.nethack.view == "terminal":
        return "--view map, which shows the policy no menus, or more cores"
    return "more cores"
