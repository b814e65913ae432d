"""Recorded states, captions and effects of Crafter, of ELLM's and BK's forks, computed again by our rules.

Four kinds of file: ELLM's episodes, its table of effects, BK's streams of rows, and made-up views with their captions.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.suggestions import parsed
from oni_jax.envs.crafter import captions, goals, maps, pixels, player, prerequisites, things, view
from oni_jax.envs.crafter import state as states
from oni_jax.envs.crafter.levels import VARIANTS
from oni_jax.envs.crafter.rules import ELLM_ACTIONS, ELLM_RULES, Rules
from oni_jax.envs.crafter.textures import load_textures
from oni_jax.envs.crafter.things import COW, DOWN, GRASS, LEFT, MATERIALS, PLAYER, SAND, SKELETON, VIEW, ZOMBIE
from oni_jax.envs.device import goals as device_goals
from oni_jax.envs.registry import find_environment
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.worlds import EnvConfig

Npz = Mapping[str, np.ndarray]
Result = tuple[str, float, float]
"""(output, numbers that differ, those allowed)"""

_DIRECTIONS = {tuple(direction): i for i, direction in enumerate(things.DIRECTIONS.tolist())}
_KINDS = {"Cow": COW, "Zombie": ZOMBIE, "Skeleton": SKELETON, "Arrow": things.ARROW, "Plant": things.PLANT}
_RECORDED_KINDS = (0, PLAYER, COW, ZOMBIE, SKELETON, things.ARROW, things.PLANT)
_TEXTS = ("caption", "inventory_text", "status_text")
_UNSEEN = 255
CRAFTER = EnvConfig(root_env="CrafterTextEnv-v1")
_begin = jax.jit(states.begin)
# Made once, so that they are compiled once.
_ellm_keys, _bk_keys = jax.jit(jax.vmap(view.ellm_key)), jax.jit(jax.vmap(view.bk_key))
_grey = jax.jit(jax.vmap(pixels.grey))


def recognises(npz: Npz) -> bool:
    return bool({"state_local_semantic", "inv_delta", "crop13"} & set(npz)) or {"semantic", "player_facing"} <= set(npz)


def check(npz: Npz) -> list[Result]:
    """Computes what the file's kind has."""
    texts = json.loads(str(npz["texts"]))
    if "state_local_semantic" in npz:
        return _check_ellm(npz, texts)
    if "inv_delta" in npz:
        recorded, found = recorded_effects(npz), effects(texts, npz["key"], npz["inventories"])
        return [_result(name, have, want) for name, have, want in zip(Effects._fields, found, recorded)]
    return _check_views(npz, texts) if "crop13" in npz else _check_bk(npz, texts)


def _result(name: str, have: Any, want: Any) -> Result:
    return name, float(np.sum(np.asarray(have) != np.asarray(want))), 0.0


def _check_ellm(npz: Npz, texts: Any) -> list[Result]:
    seen = _seen_of(
        npz["state_local_semantic"],
        npz["state_local_material"],
        position=npz["state_pos"].astype(np.int32),
        direction=_directions(npz["state_facing"]),
        inventory=npz["state_inventory"].astype(np.int32),
        is_sleeping=npz["state_sleeping"],
        is_dead=np.zeros(len(npz["state_pos"]), bool),
    )
    rules = ELLM_RULES._replace(actions=ELLM_ACTIONS[texts["settings"]["action_space_type"]])
    names = rules.goals
    possible = np.asarray(_possible(names)(seen))
    keys = np.asarray(_ellm_keys(seen))
    made = np.array([captions.ellm_parts(key) for key in keys])
    recorded = np.array([[texts["strings"][i] for i in npz[f"state_{name}"]] for name in _TEXTS]).T
    first = maps.make_map(maps.episode_seed(texts["seed"], 1))
    results = [_result(name, made[:, i], recorded[:, i]) for i, name in enumerate(_TEXTS)]
    results.append(_result("first map", _semantic(first), npz["world_semantic_0"]))
    results.append(("oracle", _oracle_errors(npz, texts, names, possible), 0.0))
    succeeded, taken = _taken(seen, npz, rules, "loose" if _checks_success(texts) else "tried")
    results.append(_result("success", succeeded, npz["step_success"] > 0))
    paid, achieved = _replayed(npz, texts, names, taken)
    results.append(_result("paid", np.round(paid, 3), np.round(npz["step_text_reward"], 3)))
    recorded_sets = [{*texts["strings"][i]} & {*names} for i in npz["state_lm_achieved"]]
    results.append(_result("achieved", achieved, [", ".join(sorted(reached)) for reached in recorded_sets]))
    if texts.get("canned_replies"):
        results.append(("suggested", _suggestion_errors(npz, texts, made), 0.0))
    return results + (_check_pictures(npz) if "frames_t" in npz else [])


@functools.cache
def _possible(names: tuple[str, ...]) -> Callable:
    return jax.jit(jax.vmap(functools.partial(goals.possible, names)))


def _oracle_errors(npz: Npz, texts: Any, names: tuple[str, ...], possible: np.ndarray) -> float:
    """Counts the states for which the oracle suggested other goals, of those that an action can reach."""
    strings, errors = texts["strings"], 0
    repeats = not texts["settings"]["novelty_bonus"]
    for row, suggested, achieved in zip(possible, npz["state_oracle"], npz["state_oracle_achieved"]):
        found = {name for name, is_possible in zip(names, row) if is_possible}
        had = set() if repeats else {*(strings[achieved] or ())}
        errors += found - had != {*(strings[suggested] or ())} & {*names}
    return errors


def _suggestion_errors(npz: Npz, texts: Any, seen: np.ndarray) -> float:
    """Counts the states whose recorded answer, found by our rendering and read strictly, suggests other goals."""
    prompt = load_prompt(AnnotationConfig(), find_environment(CRAFTER).language, "suggestions")
    answers = {
        asked.rpartition("\n\n")[2].removesuffix(" What do you do?\n"): answer
        for asked, answer in texts["canned_replies"].items()
    }
    strings, errors = texts["strings"], 0
    for parts, suggested, achieved in zip(seen, npz["state_suggested"], npz["state_lm_achieved"]):
        item = prompt.rewrite(" ".join(part for part in parts if part).encode())
        words = {*parsed(answers.get(prompt.kind.render(item.decode()), "").encode(), strict=True)}
        had = {*strings[achieved]} if texts["settings"]["novelty_bonus"] else set()
        errors += sorted(words - had) != strings[suggested]
    return errors


def _checks_success(texts: Any) -> bool:
    settings = texts["settings"]
    return settings["check_ac_success"] and settings["lm_class"] != "BaselineModel"


def _taken(seen: view.Seen, npz: Npz, rules: Rules, success: str) -> tuple[np.ndarray, np.ndarray]:
    """Computes by our rules which steps succeeded, as published, and which goals [N, G] they reached."""
    before = jax.tree.map(lambda x: x[npz["step_state"]], seen)
    succeeded, taken = _take(rules, success)(before, npz["step_action"].astype(np.int32))
    return np.asarray(succeeded), np.asarray(taken)


@functools.cache
def _take(rules: Rules, success: str) -> Callable:
    def take(seen: view.Seen, action: Any) -> tuple[Any, Any]:
        nothing = jnp.zeros(1, jnp.uint8)
        state = states.begin(
            jnp.full((things.SIZE, things.SIZE), SAND, jnp.uint8), nothing, jnp.zeros((1, 2), jnp.uint8)
        )
        corner = states.cell_of(seen.position - np.array([view.COLUMN, view.ROW]))
        at = corner + np.arange(VIEW[0])[:, None] * states.WIDTH + np.arange(VIEW[1])
        cells = jnp.zeros_like(state.cells).at[at].set(states.pack(seen.materials, seen.kinds, 0))
        state = state._replace(
            cells=cells,
            position=seen.position,
            direction=seen.direction,
            inventory=seen.inventory,
            last_health=seen.inventory[things.HEALTH],
            is_sleeping=seen.is_sleeping,
        )
        after = player.update(rules, state, action, jnp.float32(0))
        return after.names_something, goals.reached(rules, after, action, success)

    return jax.jit(jax.vmap(take))


def _replayed(npz: Npz, texts: Any, names: tuple[str, ...], taken: np.ndarray) -> tuple[list[float], list[str]]:
    """Computes what the steps were paid for the goals that were suggested then, and what each state has reached.

    taken: [N, G] bool; goals that the steps reached.
    """
    settings = texts["settings"]
    pay = _pay(names)
    paid, reached, episode = [], np.zeros(len(names), bool), -1
    achieved = [""] * len(npz["state_episode"])
    for state, action in zip(npz["step_state"], taken):
        if npz["state_episode"][state] != episode:
            episode, reached = npz["state_episode"][state], np.zeros(len(names), bool)
        worth = np.isin(names, texts["strings"][npz["state_suggested"][state]]).astype(np.float32)
        is_open = ~reached | (not settings["novelty_bonus"])
        now, reached = map(np.asarray, pay(worth * is_open, action, reached))
        paid.append(float(now))
        achieved[state + 1] = ", ".join(sorted(np.array(names)[reached]))
    return paid, achieved


@functools.cache
def _pay(names: tuple[str, ...]) -> Callable:
    return jax.jit(functools.partial(device_goals.pay, together=device_goals.same_meaning(names, prerequisites.SAME)))


def _check_pictures(npz: Npz) -> list[Result]:
    """Draws what has no noise and nothing whose look was not recorded, and resizes all recorded pictures."""
    at = npz["frames_t"]
    tiles, light = npz["state_local_semantic"][at], npz["state_daylight"][at]
    drawn = (light >= 0.5) & ~np.isin(tiles, (things.ARROW, things.PLANT)).any((1, 2))
    scenes = pixels.Scene(
        tiles,
        npz["state_local_material"][at],
        _directions(npz["state_facing"][at]),
        npz["state_sleeping"][at],
        npz["state_inventory"][at].astype(np.int32),
        light.astype(np.float32),
        np.zeros(len(at), np.uint32),
    )
    recorded = npz["frames_rgb64"]
    made = np.asarray(_rgb()(scenes))
    grey = np.asarray(_grey(recorded))[..., 0].astype(int) - npz["frames_gray84"]
    return [
        _result("picture", made[drawn], recorded[drawn]),
        ("grey picture", float(np.abs(grey).max()), 1.0),
        ("grey picture, part of its pixels", float(np.mean(grey != 0)), 0.005),
    ]


@functools.cache
def _rgb() -> Callable:
    textures = load_textures("published")
    return jax.jit(jax.vmap(lambda scene: pixels.rgb(textures, scene)))


def _semantic(first: maps.Map) -> np.ndarray:
    """Returns what stands or lies on each cell [64, 64] of a map."""
    cells, born = first.materials.copy(), first.kinds > 0
    cells[tuple(first.positions[born].T)] = first.kinds[born]
    cells[maps.CENTRE] = PLAYER
    return cells


def _check_bk(npz: Npz, texts: Any) -> list[Result]:
    border = states.BORDER
    padded = np.pad(npz["semantic"], ((0, 0), (border, border), (border, border)))
    at = npz["player_pos"].tolist()
    cells = np.stack([cells[x : x + VIEW[0], y + 1 : y + 1 + VIEW[1]] for cells, (x, y) in zip(padded, at)])
    made = _bk_captions(
        cells,
        position=npz["player_pos"].astype(np.int32),
        direction=_directions(npz["player_facing"]),
        inventory=npz["inventory"].astype(np.int32),
        is_sleeping=npz["sleeping"],
        is_dead=npz["dead"],
    )
    # Objects hide the material; the reset has taken a step, in which creatures move
    first, recorded = maps.make_map(maps.episode_seed(texts["seed"], 2)), npz["semantic"][0]
    materials = np.where(recorded < PLAYER, first.materials, recorded)
    descriptions = [row["description"] for row in texts["rows"]]
    return [_result("caption", made, descriptions), _result("first map", materials, recorded)]


def _check_views(npz: Npz, texts: Any) -> list[Result]:
    rows, crops = texts["rows"], npz["crop13"]
    middle = len(crops[0]) // 2
    x, y = middle - view.COLUMN, middle - view.ROW
    cells = crops[:, x : x + VIEW[0], y : y + VIEW[1]]
    made = _bk_captions(
        np.where(cells == _UNSEEN, 0, cells),
        position=np.array([row["player_pos"] for row in rows], np.int32),
        direction=_directions(np.array([row["facing"] for row in rows])),
        inventory=np.array([list(row["inventory"].values()) for row in rows], np.int32),
        is_sleeping=np.array([row["sleeping"] for row in rows]),
        is_dead=np.array([row["dead"] for row in rows]),
    )
    return [_result("caption", made, [row["caption"] for row in rows])]


def _bk_captions(cells: Any, **rest: Any) -> list[str]:
    seen = _seen_of(cells, np.where(cells < PLAYER, cells, 0), **rest)
    return [captions.bk_caption(key).decode() for key in np.asarray(_bk_keys(seen))]


def _seen_of(cells: Any, materials: Any, **rest: Any) -> view.Seen:
    """Returns what the player sees of cells and their materials [N, 9, 7]."""
    kinds = np.where(cells >= PLAYER, cells, 0)
    return view.Seen(materials=materials.astype(np.uint8), kinds=kinds.astype(np.uint8), **rest)


def _directions(facing: np.ndarray) -> np.ndarray:
    """Returns directions [N] of vectors [N, 2]."""
    return np.array([_DIRECTIONS[tuple(x)] for x in facing.tolist()], np.int32)


class Effects(NamedTuple):
    """Effects of each of ELLM's 139 actions in N states, each [N, 139, ...]."""

    success: Any
    eval_success: Any
    inv_delta: Any
    achievement: Any
    mat_after: Any
    obj_after: Any
    obj_health: Any
    sleeping_after: Any
    moved: Any


def recorded_effects(npz: Npz) -> Effects:
    """Returns the recorded effects; some are stored as bits."""
    values = {name: npz[name] for name in Effects._fields}
    for name in ("success", "eval_success", "sleeping_after", "moved"):
        values[name] = np.unpackbits(values[name], axis=1)[:, : len(ELLM_ACTIONS["harder"])].astype(bool)
    return Effects(**values)


def effects(table: Mapping[str, Any], keys: np.ndarray, inventories: np.ndarray) -> Effects:
    """Computes the effects of all actions in states [N] by our rules."""
    first = jax.tree.map(lambda *x: np.stack(x), *[_state(table, key, inventories) for key in keys.tolist()])
    draws = np.array(table["draws"], np.float32)[keys[:, 4]]
    found = jax.tree.map(np.asarray, _act_all(first, draws, jnp.arange(len(ELLM_ACTIONS["harder"]))))
    return found._replace(obj_after=np.searchsorted(_RECORDED_KINDS, found.obj_after))


def _act(state: states.State, draw: Any, action: Any) -> Effects:
    target = states.cell_of(state.position) + jnp.asarray(states.STEPS)[state.direction]
    after = player.update(VARIANTS["CrafterReward-v1"].rules, state, action, draw)
    gained = after.achievements - state.achievements
    kind = states.kind_of(after.cells[target])
    is_move = (action >= 1) & (action <= 4)  # no cell is recorded for moves
    return Effects(
        success=after.names_something,
        eval_success=after.event > 0,
        inv_delta=after.inventory - state.inventory,
        achievement=jnp.where(gained.sum() > 0, jnp.argmax(gained) + 1, 0),
        mat_after=jnp.where(is_move, 0, states.material_of(after.cells[target])),
        obj_after=jnp.where(is_move | (kind == PLAYER), 0, kind),
        obj_health=jnp.where(state.num_objects > 0, after.objects[0, states.HEALTH], -9),
        sleeping_after=after.is_sleeping,
        moved=(after.position != state.position).any(),
    )


_act_all = jax.jit(jax.vmap(jax.vmap(_act, (None, None, 0)), (0, 0, None)))


def _state(table: Mapping[str, Any], key: list[int], inventories: np.ndarray) -> states.State:
    """Makes a recorded class of states: sand everywhere, and one cell that is faced."""
    kind, name = table["targets"][key[0]]
    near, is_asleep = table["near"][key[2]], bool(key[3])
    materials = np.full((things.SIZE, things.SIZE), SAND, np.uint8)
    position, direction = (np.array([0, 30]), LEFT) if kind == "off" else (np.array([30, 30]), DOWN)
    x, y = position + things.DIRECTIONS[direction]
    kinds, positions = np.zeros(1, np.uint8), np.zeros((1, 2), np.uint8)
    if kind == "m":
        materials[x, y] = MATERIALS.index(name)
    if kind == "o":
        materials[x, y] = GRASS
        kinds[0], positions[0] = _KINDS[name.split("_")[0]], (x, y)
    beside = {"none": (), "both": ("table", "furnace")}.get(near, (near,))
    for i, material in enumerate(beside):
        materials[position[0] + 1, position[1] + i - 1] = MATERIALS.index(material)
    state = jax.tree.map(np.asarray, _begin(materials, kinds, positions))
    objects, cells = state.objects.copy(), state.cells.copy()
    if name == "Plant_ripe":
        objects[0, states.TIMER] = 301
    cells[states.cell_of(state.position)] &= 15
    cell = states.cell_of(position)
    cells[cell] = states.pack(cells[cell], PLAYER, 0)
    inventory = inventories[key[1]].astype(np.int32)
    return state._replace(
        objects=objects,
        cells=cells,
        position=position.astype(np.int32),
        direction=np.int32(direction),
        inventory=inventory,
        last_health=inventory[things.HEALTH],
        is_sleeping=np.bool_(is_asleep),
    )
