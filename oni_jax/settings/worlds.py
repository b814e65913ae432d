"""Settings of environments, actors and devices."""

import dataclasses
import os
import re
from typing import Any

from oni_jax.settings.fields import COUNT, UserError, plugin_sections, setting


@dataclasses.dataclass(frozen=True)
class NetHackConfig:
    """NetHack's settings."""

    view: str = setting(
        "terminal",
        "NetHack's window of characters: of the terminal with its menus, or of the map, faster.",
        choices=("terminal", "map"),
    )
    share_code: bool = setting(True, "Games of a process share NetHack's code where possible: faster.")
    stepper: str = setting(
        "auto",
        "What steps NetHack's games: the C extension where it is built, or Python.",
        choices=("auto", "python"),
    )
    engine: str = setting(
        "auto",
        "NetHack's engine: NLE's, or that of `make engine`, faster; auto: built where it is.",
        choices=("auto", "wheel", "built"),
    )


@dataclasses.dataclass(frozen=True)
class BabyAIConfig:
    """BabyAI-Text's settings."""

    size: int = setting(
        0,
        "Side of BabyAI-Text's room with its walls; 0: the level's.",
        within="[0, 64]",
        fixed=True,
        flag="babyai_size",
    )
    num_distractors: int = setting(
        -1,
        "Objects beside BabyAI-Text's targets; -1: the level's.",
        within="[-1, 1000]",
        fixed=True,
        flag="babyai_num_distractors",
    )


@dataclasses.dataclass(frozen=True)
class CrafterConfig:
    """Crafter's settings."""

    actions: str = setting(
        "",
        "ELLM's actions: 139, or the 27 that do something; empty: the task's.",
        choices=("", "harder", "easier"),
        fixed=True,
        flag="crafter_actions",
    )
    length: int = setting(0, "Steps of an episode of Crafter; 0: the task's.", fixed=True, flag="crafter_length")
    dying: str = setting(
        "",
        "Whether an episode of Crafter ends without health; empty: the task's.",
        choices=("", "on", "off"),
        flag="crafter_dying",
    )
    task: str = setting(
        "",
        "Pays in place of Crafter's reward: a goal, such as `attack cow`, or a task such as `deforestation`.",
        flag="crafter_task",
    )
    subgoals: str = setting(
        "hidden",
        "Goals on the way to --crafter_task: not needed; needed in order, the policy sees the next; or each pays.",
        choices=("hidden", "shown", "paid"),
        flag="crafter_subgoals",
    )
    task_repeats: bool = setting(
        False,
        "An episode goes on after --crafter_task, whose last goal pays again, as published.",
        flag="crafter_task_repeats",
    )
    view: str = setting(
        "tiles",
        "What a policy sees of Crafter: cells' numbers, pictures of 64 x 64 pixels, or ELLM's 4 of 84 x 84.",
        choices=("tiles", "rgb", "grey"),
        fixed=True,
        flag="crafter_view",
    )
    textures: str = setting(
        "plain",
        "Textures of Crafter's pictures: ours, or those of the extra [crafter].",
        choices=("plain", "published"),
        fixed=True,
        flag="crafter_textures",
    )
    maps: str = setting(
        "auto",
        "Crafter's maps: from a stock, or a new one each episode; auto: a stock in training.",
        choices=("auto", "stock", "exact"),
        flag="crafter_maps",
    )
    map_stock: int = setting(4096, "Maps in Crafter's stock.", within="[1, 65536]", flag="crafter_map_stock")


@dataclasses.dataclass(frozen=True)
class GoalConfig:
    """Suggested goals."""

    suggester: str = setting(
        "auto",
        "Who suggests goals for a state, see docs/ellm.md; auto: where goals are needed the task, an "
        "LLM with a server, else the oracle.",
        choices=("auto", "none", "llm", "model", "oracle", "task", "all", "random"),
        fixed=True,
        flag="goal_suggester",
    )
    answers: str = setting(
        "first",
        "--goal_suggester model: the LLM's answer where there is one, or the model's alone.",
        choices=("first", "model"),
        fixed=True,
        flag="goal_answers",
    )
    success: str = setting(
        "strict",
        "What reaches a goal: an action with effect; loose: also naming what is faced or owned; tried: any.",
        choices=("strict", "loose", "tried"),
        fixed=True,
        flag="goal_success",
    )
    repeats: bool = setting(False, "A goal pays each time, not once an episode.", fixed=True, flag="goal_repeats")
    count: int = setting(
        5, "Goals of --goal_suggester random for a state.", within=COUNT, fixed=True, flag="goal_count"
    )
    parser: str = setting(
        "tolerant",
        "Reads goals in an LLM's answer: lists of any form, or with dashes, as published.",
        choices=("tolerant", "strict"),
        fixed=True,
        flag="goal_parser",
    )
    similarity: str = setting(
        "exact",
        "A goal is suggested by its name, or by others of its meaning.",
        choices=("exact", "embeddings"),
        fixed=True,
        flag="goal_similarity",
    )
    threshold: float = setting(
        0.99,
        "Cosine above which words suggest a goal.",
        within="[0, 1]",
        fixed=True,
        flag="goal_threshold",
    )
    table_size: int = setting(
        32768,
        "Captions whose goals the device holds; the oldest give way.",
        within=COUNT,
        fixed=True,
        flag="goal_table_size",
    )


@dataclasses.dataclass(frozen=True)
class EpisodeGoalConfig:
    """The goals of an agent of several."""

    names: str = setting(
        "", "Names of the goals, which --goal_key gives; leave it empty.", fixed=True, flag="episode_goals"
    )
    weights: str = setting(
        "",
        "How often episodes have each goal of --goal_key, with commas; empty: equally.",
        flag="goal_weights",
    )
    steps: int = setting(0, "Steps after which an episode's goal is drawn again; 0: never.", flag="goal_steps")
    texts: str = setting(
        "",
        "Texts for the goals of --goal_key, with | between them; empty: the prompt's first sentences.",
        fixed=True,
        flag="goal_texts",
        joined="|",
    )


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    root_env: str = setting("NetHackScore-v1", "Task, by its name.")
    max_episode_steps: int = setting(5000, "Steps after which an episode is truncated.", within=COUNT)
    plugin: str = setting(
        "", "Module that registers your environments, encoders or rewards; may be repeated.", repeated=","
    )
    caption: str = setting(
        "auto",
        "Captions of the state, or of what the last action did; auto: event in Crafter with online_… or count alone.",
        choices=("auto", "state", "event"),
        fixed=True,
    )
    nethack: NetHackConfig = NetHackConfig()
    babyai: BabyAIConfig = BabyAIConfig()
    crafter: CrafterConfig = CrafterConfig()
    goals: GoalConfig = GoalConfig()
    episode_goal: EpisodeGoalConfig = EpisodeGoalConfig()
    plugin_sections: tuple[Any, ...] = plugin_sections("EnvConfig")


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """Actor processes and their environments."""

    num_workers: int = setting(
        0, "Actor processes; 0: one per CPU core, fewer beside an accelerator.", within="[0, 1024]"
    )
    num_envs_per_worker: int = setting(20, "Environments of an actor process; 0: by the machine.")
    worker_num_splits: int = setting(2, "Groups of environments of a process, which step in turn.", within=COUNT)
    actor_pool: str = setting(
        "auto",
        "Environments in actor processes, or in this one; auto: on the learner's devices where made for them.",
        choices=("auto", "process", "serial"),
    )
    num_answerers: int = setting(
        0,
        "Threads that compute actions; 0: one for each accelerator that acts.",
        within="[0, 64]",
    )
    max_actor_restarts: int = setting(
        10, "Actor processes replaced within ten minutes before the run ends.", within="[0, inf]"
    )


@dataclasses.dataclass(frozen=True)
class DevicesConfig:
    """Accelerators and processes of a run."""

    learner_devices: int = setting(0, "Accelerators of each process that learn, from the first; 0: all.")
    inference_devices: int = setting(0, "Accelerators of each process that act, from the last; 0: all.")
    cpu_devices: int = setting(
        1,
        "Devices that a CPU counts as, a core each.",
        within="[1, 256]",
    )
    coordinator_address: str = setting("", "host:port of process 0, reachable by all; empty: Slurm's.")
    num_processes: int = setting(0, "Processes of this run; 0: Slurm's tasks, else 1.", within="[0, 65536]")
    process_id: int = setting(-1, "Index of this process, from 0; -1: Slurm's.", within="[-1, 65536)")


def num_processes(devices: DevicesConfig) -> int:
    """Returns the number of a run's processes: that given, else that of Slurm's job step, else 1."""
    # The variable is set for a job step, which srun started; a batch script itself is not in one.
    return devices.num_processes or max(1, slurm_number("SLURM_STEP_NUM_TASKS"))


def is_primary_process(devices: DevicesConfig) -> bool:
    """Returns whether this is the first of a run's processes, or its only one.

    Raises:
        UserError: Slurm's job step has several, and nothing says which this is.
    """
    several = num_processes(devices)
    if several == 1 or devices.num_processes:
        return several == 1 or devices.process_id == 0
    index = slurm_number("SLURM_PROCID")
    if not 0 <= index < several:
        raise UserError(
            f"SLURM_STEP_NUM_TASKS is {several}, but SLURM_PROCID names none of these processes: start them by srun, "
            "or give --num_processes 1 for a run of one process"
        )
    return index == 0


def slurm_number(name: str) -> int:
    """Returns the number that a variable of Slurm holds; -1: none, or something else, as `1(x2)`."""
    text = os.environ.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1
