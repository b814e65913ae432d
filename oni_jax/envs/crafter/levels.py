"""The ids of Crafter: each a variant of its rules, and a way to describe its states."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from oni_jax.envs.crafter.compositions import find_task
from oni_jax.envs.crafter.rules import BK_RULES, ELLM_ACTIONS, ELLM_RULES, Rules
from oni_jax.envs.crafter.things import ACHIEVEMENT, ACHIEVEMENTS, DIRECTIONS, ITEMS, NAMES, VIEW
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import ArraySpec, EnvSpec

# Tiles of a cell: Crafter's numbers, and more that its pictures show
TILES = (*NAMES, "ripe plant", "arrow to the right", "arrow upwards", "arrow downwards")
STATUS_SIZE = len(ITEMS) + len(DIRECTIONS) + 2
ELLM, BK = "ELLM", "BK"  # whose way to describe states
KEY_SIZES = {ELLM: 6, BK: len(NAMES) + 1 + len(ITEMS) + 1}  # bytes of a caption's key


class Variant(NamedTuple):
    rules: Rules
    captions: str  # a key of KEY_SIZES


def _bk_task(achievement: str) -> Variant:
    return Variant(BK_RULES._replace(rewarded=(ACHIEVEMENT[achievement],), health_reward=0.0), BK)


VARIANTS = {
    "Crafter-v1": Variant(Rules(), ELLM),
    # ELLM: pretraining, which no reward of the world's disturbs, and the reward for achievements
    "CrafterTextEnv-v1": Variant(ELLM_RULES._replace(rewarded=()), ELLM),
    "CrafterReward-v1": Variant(ELLM_RULES, ELLM),
    "Crafter-Text-Reward": Variant(BK_RULES, BK),
    "Crafter-Text-PlaceCraftingTable": _bk_task("place_table"),
    "Crafter-Text-MakeWoodPickAxe": _bk_task("make_wood_pickaxe"),
    "Crafter-Text-CollectDrink": _bk_task("collect_drink"),
    "Crafter-Text-EatCow": _bk_task("eat_cow"),
}


def find_variant(config: EnvConfig) -> Variant:
    """Returns the variant of `root_env` with the settings that change it. Raises UserError: they don't fit."""
    variant, settings = VARIANTS[config.root_env], config.crafter
    rules = variant.rules
    if settings.actions:
        if rules.actions not in ELLM_ACTIONS.values():
            raise UserError(
                f"--crafter_actions {settings.actions}: {config.root_env} has other actions; "
                "CrafterTextEnv-v1 and CrafterReward-v1 have a choice"
            )
        rules = rules._replace(actions=ELLM_ACTIONS[settings.actions])
    if settings.length:
        rules = rules._replace(length=settings.length)
    if settings.dying:
        rules = rules._replace(can_die=settings.dying == "on")
    return variant._replace(rules=rules)


def with_exact_maps(config: EnvConfig) -> EnvConfig:
    """Returns the settings with `--crafter_maps auto` as it is on the host: each episode has a new map."""
    if config.crafter.maps != "auto":
        return config
    return dataclasses.replace(config, crafter=dataclasses.replace(config.crafter, maps="exact"))


TILE_VIEW = {"tiles": ArraySpec(VIEW, "uint8", num_ids=len(TILES)), "status": ArraySpec((STATUS_SIZE,), "float32")}
RGB_VIEW = {"rgb": ArraySpec((64, 64, 3), "uint8")}
NUM_FRAMES = 4
OBSERVATIONS = {  # `--crafter_view` -> observations
    "tiles": TILE_VIEW,
    "rgb": RGB_VIEW,
    "grey": {"grey": ArraySpec((84, 84, NUM_FRAMES), "uint8")},  # ELLM's
}


def crafter_spec(config: EnvConfig) -> EnvSpec:
    """Returns the facts of the environment `root_env`. Raises UserError: see `find_variant` and `find_task`."""
    spec = spec_of(find_variant(config), OBSERVATIONS[config.crafter.view])
    if not config.crafter.task:
        return spec
    if "success" in spec.episode_stats:
        raise UserError(f"--crafter_task {config.crafter.task}: {config.root_env} has a fixed task")
    find_task(config.crafter, spec.goals)  # raises if the environment lacks the task
    return spec._replace(episode_stats=(*spec.episode_stats, "success"))


def spec_of(variant: Variant, observations: Mapping[str, ArraySpec]) -> EnvSpec:
    """Returns the facts of a variant that shows these observations."""
    return EnvSpec(
        observations=observations,
        num_actions=len(variant.rules.actions),
        has_captions=True,
        has_events=True,
        episode_stats=("return", "length", "unlocked", *ACHIEVEMENTS, *(["success"] if variant.rules.has_goal else [])),
        caption_size=KEY_SIZES[variant.captions],
        event_size=1,
        goals=variant.rules.goals,
        achievements=ACHIEVEMENTS,
    )
