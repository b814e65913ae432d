"""PyPI's `crafter`, with creatures of a chunk in the order in which they entered it, and random numbers from a script.

The rules of the forks of ELLM and BK are patched on from their descriptions.
"""

import collections
import importlib
import linecache
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import crafter
import jax.numpy as jnp
import numpy as np
from crafter import objects, worldgen

from oni_jax.envs.crafter import things
from oni_jax.envs.crafter.draws import ObjectDraws
from oni_jax.envs.crafter.maps import Map
from oni_jax.envs.crafter.rules import PUBLISHED_ACTIONS, Operation, Rules
from oni_jax.envs.crafter.state import BORDER, NUM_CHUNKS, WIDTH
from oni_jax.envs.crafter.things import CHUNK, SIZE

constants: Any = importlib.import_module("crafter.constants")
_CLASSES = {
    things.COW: objects.Cow,
    things.ZOMBIE: objects.Zombie,
    things.SKELETON: objects.Skeleton,
    things.ARROW: objects.Arrow,
    things.PLANT: objects.Plant,
}
KINDS = {made: kind for kind, made in _CLASSES.items()}
_BALANCED = (objects.Zombie, objects.Skeleton, objects.Cow)
_PUBLISHED = {(action.operation, action.argument): i for i, action in enumerate(PUBLISHED_ACTIONS)}
_DO = constants.actions.index("do")
_COLUMNS = {name: i for i, name in enumerate(ObjectDraws._fields)}


class Script(NamedTuple):
    """The numbers of one step. A `Draws`."""

    player: Any  # []
    objects: Any  # [cells, 6]
    chunks: Any  # [3, chunks, 2]

    def of_player(self) -> Any:
        return jnp.asarray(self.player)

    def of_object(self, cell: Any) -> ObjectDraws:
        return ObjectDraws(*jnp.asarray(self.objects).at[cell].get(mode="clip"))

    def of_chunks(self, num_kinds: int, num_chunks: int) -> Any:
        return jnp.asarray(self.chunks)


def make_script(rng: np.random.Generator) -> Script:
    """Draws a step's numbers."""
    shapes = (), (WIDTH * WIDTH, len(_COLUMNS)), (len(_BALANCED), NUM_CHUNKS, 2)
    return Script(*(np.float32(rng.random(shape, np.float32)) for shape in shapes))


class _Ordered(dict):
    """A set that keeps its order."""

    def add(self, thing: Any) -> None:
        self[thing] = None

    def remove(self, thing: Any) -> None:
        del self[thing]


class _Random:
    """Stands for NumPy's generator: says the number of the script that is being asked for."""

    def __init__(self) -> None:
        self.script: Script | None = None
        self.asking: Any = None  # an object that is being updated, or (index of its kind, chunk)

    def uniform(self) -> float:
        return self._number("uniform")

    def randint(self, low: int, high: int) -> int:
        assert low == 0
        return int(np.floor(np.float32(high) * np.float32(self._number("randint"))))

    def _number(self, what: str) -> float:
        assert self.script is not None
        if isinstance(self.asking, tuple):
            return self.script.chunks[(*self.asking, int(what == "randint"))]
        if isinstance(self.asking, objects.Player):
            return float(self.script.player)
        x, y = self.asking.cell
        return self.script.objects[(x + BORDER) * WIDTH + y + BORDER, _COLUMNS[self._column(what)]]

    def _column(self, what: str) -> str:
        if what == "randint":
            return "direction"
        frame = sys._getframe(3)
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if isinstance(self.asking, objects.Cow):
            return "moves"
        if isinstance(self.asking, objects.Zombie):
            return "axis" if "toward" in line else "moves"
        if "-self.toward" in line:
            return "moves"
        return {"0.5": "shoots", "0.3": "follows", "0.6": "axis", "0.2": "wanders"}[line.split("< ")[-1].strip(": )\n")]


class Reference:
    """One episode of `crafter`, whose steps follow a script.

    Args:
      seed: of the environment.
      rules: the variant, whose differences are patched on.
      first_step: steps that have passed, as far as light and creatures are concerned.
      made: the map; when left out, a new one, which takes seconds.
    """

    def __init__(self, seed: int, rules: Rules | None = None, first_step: int = 0, made: Map | None = None):
        self.rules = rules or Rules()
        self.env: Any = crafter.Env(seed=seed, length=10**9)
        self.env._obs = lambda: None  # type: ignore
        world = self.env._world
        reset = world.reset

        def ordered_reset(seed: int) -> None:
            reset(seed)
            world._chunks = collections.defaultdict(_Ordered)  # type: ignore

        world.reset = ordered_reset  # type: ignore
        with mock.patch.object(worldgen, "generate_world", _filler(made) if made else worldgen.generate_world):
            self.env.reset()
        self.random = world.random = _Random()  # type: ignore
        for thing in world.objects:
            thing.random = self.random
        self.env._step = first_step
        self.player: Any = self.env._player
        self._patch()

    def _patch(self) -> None:
        env, random, rules, player = self.env, self.random, self.rules, self.player

        def balance(kind: int, chunk: tuple[int, ...], *args: Any) -> None:
            random.asking = kind, chunk[0] // CHUNK * -(-SIZE // CHUNK) + chunk[2] // CHUNK
            crafter.Env._balance_object(env, chunk, *args)

        env._balance_object = lambda chunk, objs, cls, *args: balance(_BALANCED.index(cls), chunk, objs, cls, *args)

        inventory = player.inventory
        if rules.damages[0] > 1:  # swords of no use: the damage is the largest of bare hand and swords
            do_object = player._do_object

            def strong(thing: Any) -> None:
                if isinstance(thing, objects.Zombie | objects.Skeleton | objects.Cow):
                    thing.health = min(thing.health, 1)  # one blow of any strength is enough
                do_object(thing)

            player._do_object = strong
        if rules.most_collected == things.MAX_AMOUNT:
            do_material = player._do_material

            def limited(target: Any, material: str) -> None:
                item = next(iter(constants.collect.get(material, {"receive": {"wood": 1}})["receive"]))
                before = inventory[item], player.achievements[f"collect_{item}"]
                do_material(target, material)
                if before[0] >= things.MAX_AMOUNT:
                    inventory[item], player.achievements[f"collect_{item}"] = before

            player._do_material = limited
        if rules.wood_for_table != 2:
            place = player._place

            def cheap(name: str, target: Any, material: str) -> None:
                saved = constants.place["table"]["uses"]["wood"]
                constants.place["table"]["uses"]["wood"] = rules.wood_for_table
                place(name, target, material)
                constants.place["table"]["uses"]["wood"] = saved

            player._place = cheap

    def step(self, action: int, script: Script) -> tuple[float, bool]:
        """Takes an action of the variant. Returns the reward, by the published formula, and whether it ended."""
        random, env, player = self.random, self.env, self.player
        random.script = script
        for thing in env._world.objects:
            self._watch(thing)
        chosen = self.rules.actions[action]
        name = constants.actions[_PUBLISHED.get((chosen.operation, chosen.argument), _DO)]
        target = tuple(np.add(player.pos, player.facing))
        material, thing = env._world[target]
        hidden = None
        if chosen.operation == Operation.COLLECT:
            if material == things.MATERIALS[chosen.argument]:
                hidden = thing  # things that stand on the material are no hindrance
            else:
                name = "noop"
        if chosen.operation == Operation.STRIKE and KINDS.get(type(thing)) != chosen.argument:
            name = "noop"
        if hidden is not None:
            player._do_object = lambda thing: player._do_material(target, material)
        _, reward, ended, _ = env.step(constants.actions.index(name))
        if hidden is not None:
            del player._do_object
            self._patch()
        return reward, bool(ended)

    def _watch(self, thing: Any) -> None:
        """Notes who asks for numbers, and from which cell."""
        if thing.__dict__.get("update") is None:
            random, update = self.random, type(thing).update

            def watched() -> None:
                random.asking = thing
                thing.cell = tuple(int(i) for i in thing.pos)
                update(thing)

            thing.update = watched

    def faced(self) -> tuple[str, ...]:
        """Returns the names of what the player faces."""
        material, thing = self.env._world[tuple(np.add(self.player.pos, self.player.facing))]
        return (str(material), type(thing).__name__.lower())

    def state(self) -> dict[str, Any]:
        """Returns everything that later steps depend on."""
        world, player = self.env._world, self.player
        return {
            "materials": world._mat_map.copy(),
            "standing": np.vectorize(lambda i: _kind(world._objects[i]))(world._obj_map),
            "objects": [
                (KINDS[type(thing)], *(int(i) for i in thing.pos), thing.health, _timer(thing))
                for thing in world.objects[1:]
            ],
            "position": tuple(int(i) for i in player.pos),
            "facing": tuple(player.facing),
            "inventory": list(player.inventory.values()),
            "is_sleeping": player.sleeping,
            "needs": [player._hunger, player._thirst, player._fatigue, player._recover],
            "achievements": list(player.achievements.values()),
        }


def _filler(made: Map) -> Callable[[Any, Any], None]:
    """Returns a function that fills a world as the map says."""

    def fill(world: Any, player: Any) -> None:
        for (x, y), material in np.ndenumerate(made.materials):
            world[x, y] = things.MATERIALS[material]
        for kind, position in zip(made.kinds, made.positions.tolist()):
            if kind:
                self_class = _CLASSES[kind]
                world.add(
                    self_class(world, position, *([player] if self_class in (objects.Zombie, objects.Skeleton) else []))
                )

    return fill


def _kind(thing: Any) -> int:
    return 0 if thing is None else KINDS.get(type(thing), things.PLAYER)


def _timer(thing: Any) -> int:
    if isinstance(thing, objects.Zombie):
        return thing.cooldown
    if isinstance(thing, objects.Skeleton):
        return thing.reload
    if isinstance(thing, objects.Arrow):
        return [tuple(direction) for direction in things.DIRECTIONS.tolist()].index(tuple(int(i) for i in thing.facing))
    return getattr(thing, "grown", 0)
