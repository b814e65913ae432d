"""Lines next to a game that is played."""

import contextlib
import dataclasses
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oni_jax.envs.display import ROWS
from oni_jax.envs.nethack.display import DISPLAY
from oni_jax.envs.nethack.single_game import SingleGame
from oni_jax.envs.registry import env_spec
from oni_jax.evaluation.agents import PolicyAgent, RandomAgent
from oni_jax.evaluation.episodes import nethack_seeds
from oni_jax.evaluation.recording import replay
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.rewards.baselines import apt
from oni_jax.rewards.combine import Potential
from oni_jax.rewards.registry import REWARD_TYPES, RewardType
from oni_jax.runs.run import Run
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig
from oni_jax.show import panel
from oni_jax.show import play as playing
from oni_jax.show.config import PlayConfig
from oni_jax.show.keys import action_text
from oni_jax.show.labels import Label, Labels, labels_of, run_labels
from oni_jax.show.play import ROWS_BELOW, WIDE, Pace, message_lines, set_up, view
from oni_jax.show.session import LabelScorer, Session
from tests.evaluation.runs import NETHACK, write_run
from tests.evaluation.steps import running_counts, scored
from tests.evaluation.test_step_rewards import OfText
from tests.evaluation.test_step_rewards import write_run as write_rewarded_run
from tests.show.runs import write_labelled_run
from tests.support.asking import LANGUAGE

KILL = b"You kill the newt!"
KEYS = DISPLAY.keys(EnvConfig(root_env="NetHackScore-v1"))


class Hands:
    """A shell in which keys are pressed by a script, one look after another."""

    def __init__(self, *keys: str, size=(ROWS, WIDE)):
        self._keys, self._size, self.drawn = list(keys), size, []

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def size(self):
        return self._size

    def draw(self, rows):
        self.drawn.append("\n".join(rows))

    def keys(self, timeout_secs):
        return [ord(key) for key in self._keys.pop(0)]


def test_labels_of_the_store_come_first():
    labels = Labels(AnnotationConfig(), LANGUAGE, {KILL: (0,), b"pair": (3, 1, 2)})
    assert labels.of(b"") is None
    assert labels.of(KILL) == ("not helpful", "label store", False)
    assert labels.of(b"pair") == ("better in 3 pairs, worse in 1, 2 ties", "label store", None)
    judged = Labels(AnnotationConfig(goal="find gold"), LANGUAGE, {}).of(KILL)
    assert judged and judged.helpful is False and judged.source == "rule-based judge"
    judged = Labels(AnnotationConfig(answers="judge"), LANGUAGE, {}).of(KILL)
    assert judged and judged.text == "helpful: a monster killed by the player"
    assert Labels(AnnotationConfig(), LANGUAGE, {}).of(KILL) is None  # recorded answers are not guessed at


def test_labels_without_a_run_are_the_recorded_ones():
    labels = labels_of(EnvConfig())
    assert labels.of(b"You kill the newt!") == ("helpful", "Claude, recorded 2026-11", True)
    assert labels.of(b"Nobody was asked about this.") is None


def test_a_person_at_the_keys():
    shell = Hands("s", "W", "s", "s", "s", "\x18")
    session = playing.play(PlayConfig(max_episode_steps=3), lambda: shell, StopRequest())  # type: ignore[arg-type]
    assert session.step_count == 3 and session.end == "step limit"
    assert "W is no action" in "".join(shell.drawn) and "the episode is over" in shell.drawn[-1]
    assert "step limit; intrinsic return" in session.summary()


@pytest.mark.slow
def test_a_person_walks_through_a_room_on_a_terminal_of_24_rows():
    shell = Hands("k", "h", "l", "p", "x", "\x18", size=(24, 80))
    config = PlayConfig(root_env="BabyAI-Text-GoToLocal-RedBall-S20", seed=3, max_episode_steps=100)
    session = playing.play(config, lambda: shell, StopRequest())  # type: ignore[arg-type]
    assert session.step_count == 4 and session.action == "pick up the front object (p)"
    assert all(frame.count("\n") < 24 for frame in shell.drawn)
    assert "go to a red ball" in shell.drawn[0] or "go to the red ball" in shell.drawn[0]
    assert "You see" in shell.drawn[0] and "x is no action" in shell.drawn[-1]
    turned = [next(agent for agent in ">v<^" if agent in frame) for frame in shell.drawn]
    assert turned[1] != turned[2] and turned[1] == turned[3]


def test_chance_plays_the_evaluations_episode():
    config = PlayConfig(policy="random", seed=4, episode=70, max_episode_steps=12, steps_per_sec=128.0)
    shell = Hands(*["."] * 12, "q")
    session = playing.play(config, lambda: shell, StopRequest())  # type: ignore[arg-type]
    assert session.step_count == 12
    agent = RandomAgent(len(KEYS), 4)
    steps, episodes = np.zeros(1, np.int32), np.full(1, 70, np.int32)
    actions = [int(agent.act(0, np.zeros(1), episodes, steps + i)[0]) for i in range(12)]
    assert session.action == action_text(KEYS[actions[-1]])


SPEC = env_spec(EnvConfig(root_env="NetHackScore-v1"))
HELPED = AnnotationConfig(answers="judge")


class Scripted(SingleGame):
    """A game in which a newt dies at every step."""

    def step(self, actions, out):
        super().step(actions, out)
        out.texts.captions[:] = out.texts.final_captions[:] = [KILL]


def begun(game, limit=50, labels=None, **settings) -> Session:
    labels = labels or Labels(HELPED, LANGUAGE, {})
    return Session(
        game, tuple(KEYS), limit, {"": labels}, LabelScorer(labels, with_values(RewardConfig(), settings), SPEC)
    )


@pytest.fixture
def session():
    with contextlib.closing(begun(SingleGame("NetHackScore-v1", nethack_seeds(1, 0), 50))) as found:
        yield found


def test_repeated_messages_are_worth_less():
    with contextlib.closing(begun(Scripted("NetHackScore-v1", nethack_seeds(1, 0), 50))) as session:
        for count, worth in ((1, 1.0), (2, 1 / 8), (3, 1 / 27)):
            session.step(0)
            assert session.count == count and session.intrinsic == pytest.approx(worth)
        texts = [text.text for text in message_lines(session, {})]
    assert "label     helpful: a monster killed by the player" in texts and "  for the 3. time" in texts
    assert "intrinsic 0.03704" in texts and "total     1.162" in texts


@pytest.mark.parametrize("paid_at, paid", [("obs", slice(0, 3)), ("next_obs", slice(1, 4))])
def test_the_total_is_what_training_pays(paid_at, paid):
    labels: Any = SimpleNamespace(of=lambda message: Label("", "", True))
    game = SingleGame("NetHackScore-v1", nethack_seeds(1, 0), 3)
    with contextlib.closing(begun(game, 3, labels, beta_count_exponent=1.0, intrinsic_reward_at=paid_at)) as played:
        messages, discounted = [played.message], [played.intrinsic]
        for action in (10, 3, 10):
            played.step(action)
            messages.append(played.message)
            discounted.append(played.intrinsic)
    expected = [1 / count for count in running_counts(messages)]
    assert played.end and played.total == pytest.approx(sum(expected[paid]))
    assert discounted[paid] == pytest.approx(expected[paid]) and sum(discounted) == pytest.approx(played.total)


def test_a_policy_is_compiled_before_the_terminal_is_taken(tmp_path):
    write_labelled_run(tmp_path / "run", {}, intrinsic_reward_at="next_obs")
    config = PlayConfig("sample", str(tmp_path), "run", max_episode_steps=5)
    counts = []

    class Counting(Hands):
        def __enter__(self):
            counts.append(counter.count)
            return super().__enter__()

        def __exit__(self, *_):
            counts.append(counter.count)

    counter = CompilationCounter()
    playing.play(config, lambda: Counting(*["."] * 5, "q"), StopRequest())  # type: ignore[arg-type]
    counter.close()
    assert 0 < counts[0] == counts[1]


def test_the_end_is_seen_however_long_the_names_are(session):
    session.end = "step limit"
    table = set_up(PlayConfig())._replace(who="a run with a very long name at 12,345,678 steps, greedy")
    assert "step limit" in "".join(view(session, table, "the help", ROWS + ROWS_BELOW, 80))


@pytest.mark.parametrize("size", [(ROWS, WIDE), (ROWS + ROWS_BELOW, 80), (ROWS, 80), (10, 30)])
def test_game_fits_its_terminal(session, size):
    table = set_up(PlayConfig())
    rows = view(session, table, "the help", *size, panel_shown=True)
    assert len(rows) <= size[0]
    if size[0] >= ROWS:
        text = "".join(rows)
        assert all(word in text for word in ("step      0 of 50", "of the message", "reward", "the help"))


def test_a_run_tells_labels_and_reward(tmp_path):
    write_labelled_run(tmp_path / "run", {KILL: 1, b"A rock.": 0}, beta_count_exponent=2.0)
    table = set_up(PlayConfig(train_dir=str(tmp_path), experiment="run"))
    label = table.labels["online_cls"].of(KILL)
    assert label and label.source == "label store" and "run at 640 steps" in table.scorer.source
    assert scored(table.scorer, [KILL, b"A rock.", KILL, b""]).tolist() == [[1, 0, 0.25]]
    assert table.env.max_episode_steps == 40


def test_a_wrong_checkpoint_is_told(tmp_path):
    write_labelled_run(tmp_path / "run", {KILL: 1})
    with pytest.raises(UserError, match="no checkpoint of 77 steps, but of 640"):
        set_up(PlayConfig(train_dir=str(tmp_path), experiment="run", checkpoint="77"))
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # as of a run that has just begun
    assert "1 for a helpful message" in set_up(PlayConfig(train_dir=str(tmp_path), experiment="run")).scorer.source


@pytest.mark.parametrize(
    "config, message",
    [
        (PlayConfig(root_env="Catch-v0"), "Catch-v0: can.t be played"),
        (PlayConfig(root_env="NetHack"), "unknown root_env 'NetHack'"),
        (PlayConfig(experiment="nobody"), "nobody/config.json can't be read"),
    ],
)
def test_environments_that_can_t_be_played(config, message):
    with pytest.raises(UserError, match=message):
        set_up(config)


def test_a_game_in_eighty_columns_tells_of_its_panel_and_of_hints(session):
    table = set_up(PlayConfig())
    rows = view(session, table, "the help", ROWS, 80)
    assert len(rows) == ROWS and "of the message" not in "".join(rows)
    session.hint = "W is no action here"
    assert "W is no action here" in view(session, table, "the help", ROWS, 80)[0]
    assert "HP:" in rows[-1]


def pressed(keys: str) -> Pace:
    pace = Pace(8.0)
    for key in keys:
        pace = pace.pressed(ord(key))
    return pace


def test_keys_that_steer_what_goes_on_by_itself():
    assert pressed(" ").paused and not pressed("  ").paused
    assert pressed("+").per_sec == 16 and pressed("=").per_sec == 16 and pressed("--").per_sec == 2
    assert pressed("+" * 20).per_sec == 128 and pressed("-" * 20).per_sec == 0.5
    assert pressed("\t").panel and not pressed("\t\t").panel
    assert pressed("q").quit and not pressed("zx").quit


def test_a_policy_reads_the_message_it_is_shown(tmp_path, monkeypatch):
    """Also where the game does not show it as an observation; earlier steps are refused."""
    settings = {"root_env": "NetHackScore-v1", "encoder_custom": "generic_encoder", "hidden_size": 8}
    write_run(tmp_path / "run", {**settings, "llm_reward_type": "none", "language_state": True})
    seen = []
    act = PolicyAgent.act

    def noted(agent, group, records, *rest):
        seen.append(records["caption"][0].tobytes().rstrip(b"\0"))
        return act(agent, group, records, *rest)

    monkeypatch.setattr(PolicyAgent, "act", noted)
    config = PlayConfig("sample", str(tmp_path), "run", max_episode_steps=3, steps_per_sec=128.0)
    playing.play(config, lambda: Hands(*["."] * 3, "q"), StopRequest())  # type: ignore[arg-type]
    assert seen[1].startswith(b"Hello")


def test_rewards_of_training_alone_are_not_shown(tmp_path):
    write_rewarded_run(tmp_path / "run", {**NETHACK, "llm_reward_type": "rnd,apt", "llm_reward_coeff": 1.0})
    table = set_up(PlayConfig(train_dir=str(tmp_path), experiment="run"))
    assert table.scorer.labels == ["rnd"] and table.not_shown == {"apt": apt.AptReward.only_in_training}


def test_every_reward_pays_in_play_and_in_films_as_in_evaluations(tmp_path, monkeypatch):
    """Each by its count discount, end and coefficient; a potential is valued at both ends of a step."""
    monkeypatch.setitem(REWARD_TYPES, "of_text", RewardType(lambda context: Potential(OfText(), 0.9, context.frozen)))
    first = {"llm_reward_type": "count", "llm_reward_coeff": 0.1, "beta_count_exponent": 1.0}
    later = {**first, "llm_reward_coeff": 0.5, "beta_count_exponent": 3.0, "intrinsic_reward_at": "next_obs"}
    also = [later, {**first, "llm_reward_type": "of_text", "llm_reward_coeff": 2.0}]
    run = write_rewarded_run(tmp_path / "run", {**NETHACK, **first, "max_episode_steps": 12}, also=also)
    played = run.evaluate(1, num_workers=1)
    expected = played.episodes[0].intrinsic_returns
    assert [*expected] == ["count", "count_2", "of_text"] and len({*expected.values()}) == 3
    config = PlayConfig("sample", str(tmp_path), "run", steps_per_sec=128.0)
    session = playing.play(config, lambda: Hands(*["."] * 12, "q"), StopRequest())  # type: ignore[arg-type]
    np.testing.assert_allclose(session.totals, [*expected.values()], rtol=1e-5)
    assert session.total == pytest.approx(0.1 * expected["count"] + 0.5 * expected["count_2"] + 2 * expected["of_text"])
    texts = " ".join(text.text for text in message_lines(session, {}))
    assert all(f"  {name} " in texts for name in expected)
    scorer = session.scorer
    film = replay(run.config.env, played, played.episodes[0], "", {0}, scorer)
    np.testing.assert_allclose(film.intrinsic.sum(axis=1), session.totals, rtol=1e-5)
    shown = panel.intrinsic_lines(scorer, film.intrinsic[:, -1], film.intrinsic.sum(axis=1))
    assert shown[1].text == f"total     {session.total:.4g}" and "count_2" in shown[3].text


def test_labels_of_every_reward_are_shown_by_its_name(tmp_path):
    config = write_labelled_run(tmp_path / "run", {KILL: 1})
    also = dataclasses.replace(config.reward, llm_reward_type="online_cls_reward_model")
    asking = dataclasses.replace(config.annotation, goal_key="combat")
    (tmp_path / "run" / "config.json").write_text(config_to_json(dataclasses.replace(config, others=((also, asking),))))
    labels = run_labels(Run(str(tmp_path / "run")))
    assert {name: label.of(KILL) and label.of(KILL).source for name, label in labels.items()} == {  # type: ignore
        "online_cls": "label store",
        "online_cls_reward_model": "rule-based judge",
    }
    game = SingleGame("NetHackScore-v1", nethack_seeds(1, 0), 50)
    spoken: Any = {
        name: SimpleNamespace(of=lambda message, label=label: label.of(KILL)) for name, label in labels.items()
    }
    scorer = LabelScorer(labels["online_cls"], config.reward, SPEC)
    with contextlib.closing(Session(game, tuple(KEYS), 50, spoken, scorer)) as session:
        texts = [text.text for text in message_lines(session, {})]
    assert "online_cls helpful" in texts and any(text.startswith("online_cls_reward_model ") for text in texts)
