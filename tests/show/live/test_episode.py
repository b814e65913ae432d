"""A training on a terminal shows an episode that is being played."""

import time

import pytest

from tests.show.live.terminals import Terminal
from tests.support.processes import SMALL
from tests.support.pseudoterminal import DEADLINE_SECS

BABYAI = "--root_env=BabyAI-Text-GoToLocal-RedBall-S20 --encoder_custom=mlp_encoder --batch_size=256 --hidden_size=16"
WORLDS = {  # flags, and words of an episode's first and last rows
    "nethack": (SMALL, "Dlvl:1", "HP:"),
    "babyai": ([*BABYAI.split(), "--babyai_size=8", "--log_every_sec=0.3"], "red ball", "# # # #"),
    "catch": ("--root_env=Catch-v0 --encoder_custom=mlp_encoder --num_workers=1 --hidden_size=16".split(), "", ""),
}


@pytest.fixture
def training(request, tmp_path):
    terminal = Terminal(140, 50)
    words = "--llm_reward_type=none", f"--train_dir={tmp_path}", "--experiment=my_run", "--device=cpu"
    terminal.start(["-m", "launch.train", *WORLDS[request.param][0], *words])
    yield terminal, *WORLDS[request.param][1:]
    terminal.close()


def episode_of(text: str) -> list[str]:
    """The rows of the episode on an overview, without what is beside them."""
    lines = text.split("\n")
    (heading,) = [i for i, line in enumerate(lines) if line.startswith("episode    one of")]
    return [line[:80].rstrip() for line in lines[heading + 1 : heading + 25]]


@pytest.mark.slow
@pytest.mark.parametrize("training", ["nethack", "babyai"], indirect=True)
def test_episode_is_shown_and_moves_on(training):
    terminal, first, last = training
    seen, deadline = set(), time.monotonic() + DEADLINE_SECS
    while len(seen) < 3:
        assert time.monotonic() < deadline, seen
        text = terminal.shows("episode    one of", " e  episode")
        seen.add("\n".join(episode_of(text)))
        assert first in text and last in text
    terminal.resize(80, 24)
    text = terminal.shows("my_run", " e  episode", until=lambda text: "episode    one of" not in text)
    assert first not in text
    terminal.type("e")
    assert last in terminal.shows(first, " e  overview")
    terminal.type("e")
    terminal.resize(140, 50)
    text = terminal.shows("episode    one of", " e  episode", until=lambda text: len(text.split("\n")) == 50)
    assert text.startswith("my_run") and sum(line.startswith("my_run") for line in text.split("\n")) == 1
    terminal.type("\x03")
    assert terminal.ended() == 0


@pytest.mark.slow
@pytest.mark.parametrize("training", ["catch"], indirect=True)
def test_a_world_without_looks_has_no_place_for_them(training):
    terminal, *_ = training
    text = terminal.shows("return", " q  queues", until=lambda text: " steps\n" in text)
    assert "episode    one of" not in text and " e " not in text
    terminal.type("e\x03")
    assert terminal.ended() == 0
