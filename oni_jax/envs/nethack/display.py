"""NetHack's terminal and keys, for people."""

from collections.abc import Sequence

from oni_jax.envs.display import ActionKey, Display
from oni_jax.envs.nethack.single_game import SingleGame
from oni_jax.envs.nethack.tasks import TASKS, nethack
from oni_jax.envs.nethack.vector_env import episode_seeds
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import EnvSpec

DIRECTIONS = {"N": "north", "E": "east", "S": "south", "W": "west"}
MOVES = "hjklyubn move (also arrows), HJKLYUBN far"


def _watch(config: EnvConfig, spec: EnvSpec, seed: int, index: int, number: int, ttyrec: str) -> SingleGame:
    seeds, limit = episode_seeds(seed)(index, number), config.max_episode_steps
    return SingleGame(config.root_env, seeds, limit, spec.observations, config.nethack, ttyrec or None)


def _key_words() -> dict[int, str]:
    words = {}
    for command in nethack.Command:
        words[int(command)] = command.name.lower()
    for directions, far in ((nethack.CompassDirection, ""), (nethack.CompassDirectionLonger, "far ")):
        for direction in directions:
            words[int(direction)] = far + "".join(DIRECTIONS[letter] for letter in direction.name)
    for action in (*nethack.MiscDirection, nethack.MiscAction.MORE):
        words[int(action)] = action.name.lower()
    return words


KEY_WORDS = _key_words()


def _keys(config: EnvConfig) -> Sequence[ActionKey]:
    return [ActionKey(key, KEY_WORDS[key], chr(key).lower() not in "hjklyubn") for key in TASKS[config.root_env].keys]


DISPLAY = Display(_watch, _keys, MOVES)
