"""Which keys a game is sent, told by an engine that plays a script. Recordings in tests/golden check the whole."""

import nle.nethack
import numpy as np
import pytest

from oni_jax.envs.nethack.game import GameArrays, NetHackGame
from oni_jax.envs.nethack.tasks import TASKS
from oni_jax.envs.nethack.vector_env import engine_array

SPACE, ESCAPE, CAST, ENHANCE, KEY = 32, 27, ord("Z"), 0x80 | ord("e"), ord("k")
NOTHING, QUESTION, LINE, MORE = None, 1, 2, 3
DEAD = -1


class ScriptedEngine:
    """Answers each key with the script's next (what the game waits for, message), and remembers the keys."""

    def __init__(self):
        self.script, self.keys = [], []
        self.waits: int | None = NOTHING

    def set_buffers(self, message, internal, program_state, **_):
        self.message, self.internal = message, internal
        program_state[3] = 1

    def set_initial_seeds(self, *_): ...

    def reset(self): ...

    def done(self):
        return self.waits == DEAD

    def in_normal_game(self):
        return True

    def show(self, waits, message=b""):
        self.waits = waits
        self.message[:] = np.frombuffer(message.ljust(256, b"\0"), np.uint8)
        self.internal[:] = 0
        if waits is not NOTHING and waits != DEAD:
            self.internal[waits] = 1

    def step(self, key):
        assert not self.done(), "a key pressed after the end"
        self.keys.append(key)
        self.show(*self.script.pop(0))


@pytest.fixture
def make_game(monkeypatch):
    class FakeNethack:
        def __init__(self, **_):
            self._pynethack = ScriptedEngine()
            self.dlpath = "scripted"

    monkeypatch.setattr(nle.nethack, "Nethack", FakeNethack)

    def make(task, message=b""):
        names = [name for name in GameArrays._fields if name != "screen"]
        arrays = GameArrays(**{name: engine_array(name, 1) for name in names}, screen={})
        game = NetHackGame(TASKS[task], arrays, 0)
        game._engine.show(NOTHING, message)
        game.start(0, 0)
        return game

    return make


def press(game, key, *script):
    """(keys the engine got, whether dead, message after) of the agent's key; `script`: the engine's answers."""
    engine = game._engine
    engine.script, engine.keys = list(script), []
    key = game.translate(key)
    game.press_raw(key)
    dead = game.settle(key)
    assert not engine.script, "answers left over"
    return engine.keys, dead, game.message.rstrip(b"\0")


SCORE, EXTENDED, CONTINUAL = "NetHackScore-v1", "NetHackScoreExtendedActions-v1", "NetHackStaircaseContinual-v1"


def test_plain_key(make_game):
    assert press(make_game(SCORE), KEY, (NOTHING, b"Hi")) == ([KEY], False, b"Hi")


def test_more_is_clicked_through_death_ends(make_game):
    script = (MORE, b"You die..."), (MORE, b"Do you"), (DEAD, b"")
    assert press(make_game(SCORE), KEY, *script) == ([KEY, SPACE, SPACE], True, b"")


def test_text_is_declined(make_game):
    assert press(make_game(SCORE), KEY, (LINE, b"Call it:"), (NOTHING,)) == ([KEY, ESCAPE], False, b"")


@pytest.mark.parametrize(
    ("task", "question", "left"),
    [
        (SCORE, b"What do you want to eat? [a or ?*]", True),
        (SCORE, b"Really attack the gnome?", True),
        (SCORE, b"In what direction?", True),
        (SCORE, b"Are you sure you want to pray?", True),
        (SCORE, b"What do you want to drink? [a or ?*]", True),
        (EXTENDED, b"What do you want to drink? [a or ?*]", True),
        (CONTINUAL, b"What do you want to drink? [a or ?*]", False),
        (CONTINUAL, b"What do you want to eat? [a or ?*]", True),
        (SCORE, b"Beware, there will be no return! Still climb?", False),
    ],
)
def test_questions(make_game, task, question, left):
    game = make_game(task)
    if left:
        assert press(game, KEY, (QUESTION, question)) == ([KEY], False, question)
    else:
        assert press(game, KEY, (QUESTION, question), (NOTHING, b"No.")) == ([KEY, ESCAPE], False, b"No.")


@pytest.mark.parametrize(
    ("task", "prompt", "key", "pressed"),
    [
        (SCORE, b"What do you want to eat? [fgh or ?*]", ord("y"), ord("f")),
        (SCORE, b"What do you want to eat? [fgh or ?*]", KEY, SPACE),
        (SCORE, b"What do you want to eat? [*]", ord("y"), SPACE),
        (SCORE, b"What do you want to drink? [c or ?*]", ord("y"), ord("y")),
        (EXTENDED, b"What do you want to drink? [c or ?*]", ord("y"), ord("c")),
    ],
)
def test_items(make_game, task, prompt, key, pressed):
    assert press(make_game(task, prompt), key, (NOTHING,))[0] == [pressed]


def test_the_way_down_is_not_forgotten(make_game):
    script = (MORE, b"You descend the stairs. There is a fountain."), (MORE, b"Hello."), (NOTHING, b"Welcome.")
    keys, _, message = press(make_game(SCORE), KEY, *script)
    assert keys == [KEY, SPACE, SPACE] and message == script[0][1]


def test_casting_takes_the_first_spell(make_game):
    assert press(make_game(EXTENDED), CAST, (QUESTION, b"Choose a spell"), (NOTHING, b"Zap"))[0] == [CAST, ord("a")]
    assert press(make_game(SCORE), CAST, (NOTHING, b"You don't know any spells."))[0] == [CAST]
    # In answer to another prompt it is no cast.
    assert press(make_game(EXTENDED, b"What do you want to eat? [f or ?*]"), CAST, (NOTHING,))[0] == [SPACE]


def test_skills_are_enhanced(make_game):
    message = b"You feel more confident in your fighting skills."
    keys = [KEY, ENHANCE, ord("a")]
    assert press(make_game(EXTENDED), KEY, (NOTHING, message), (NOTHING,), (NOTHING, b"Good")) == (keys, False, b"Good")
    keys = [KEY, SPACE, ENHANCE, ord("a")]
    assert press(make_game(EXTENDED), KEY, (MORE, message), (NOTHING,), (NOTHING,), (NOTHING,))[0] == keys
    assert press(make_game(SCORE), KEY, (NOTHING, message))[0] == [KEY]


def test_kills(make_game):
    game = make_game(SCORE, b"You kill the newt!")
    press(game, KEY, (NOTHING, b"You kill it! You kill the rat!"))
    assert game.kill_count == 1
    press(game, KEY, (NOTHING, b"You miss the rat."))
    press(game, KEY, (NOTHING,))
    assert game.kill_count == 2


def test_quitting(make_game):
    game = make_game(SCORE)
    engine = game._engine
    engine.show(QUESTION, b"What do you want to eat? [f or ?*]")
    engine.script = [(NOTHING,), (QUESTION, b"Really quit?"), (MORE, b"Bye"), (DEAD,)]
    game.quit()
    assert engine.keys == [ESCAPE, 0x80 | ord("q"), ord("y"), SPACE] and engine.done()
