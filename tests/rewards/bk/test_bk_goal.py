"""Shaping by goals: recorded values, windows of running worlds, and captions of both kinds of environment."""

import dataclasses
import json
import math
import time
from collections import Counter
from contextlib import closing

import jax
import numpy as np
import pytest

from oni_jax.envs.babyai.levels import ACTION_WORDS
from oni_jax.envs.base import make_step_output
from oni_jax.envs.history import ACTIONS, CAPTION, NO_ACTION, past_name
from oni_jax.envs.registry import caption_reader, env_spec, make_vector_env
from oni_jax.ops.words import words_of
from oni_jax.rewards.bk import window_potential
from oni_jax.rewards.bk.bk_goal import GoalPotential, observations
from oni_jax.rewards.bk.goals import GOALS, HORIZON, GoalLibrary, GoalVectors, texts_of_window
from oni_jax.rewards.bk.windows import Windows, make_windows
from oni_jax.rewards.embeddings.embeddings import embed_grams
from oni_jax.rewards.registry import check_rewards, make_rewards
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import CaptionBatch
from tests.golden import data_file
from tests.rewards.bk.test_bk_code import run, shaped
from tests.worlds.device.device_worlds import N, T

LIBRARY = GoalLibrary(
    ["Current observation: The signal is 3", "You choose the action: action 1", "The signal is 5"],
    [f"The signal is {i}. You choose the action: action {j}." for i in range(1, 8) for j in range(2)],
    [[i % 3] if i % 4 else [0, 2] for i in range(14)],
)
THRESHOLD = 0.4


def cosine(one: str, two: str) -> float:
    """Returns the cosine of the counts of words and pairs of words; not hashed."""

    def grams(text: str) -> Counter:
        words = words_of(text)
        return Counter([*words, *zip(words, words[1:])])

    a, b = grams(one), grams(two)
    return sum(a[x] * b[x] for x in a) / math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))


def phi(signals: list[float], actions: list[int]) -> float:
    """The potential of the newest state, after these of an episode and the actions between."""
    states, taken = [f"The signal is {x:g}." for x in signals[-5:]], [f"action {x}" for x in actions[-4:]]
    if not taken:
        return 0.0
    transition = f"{states[-2]} You choose the action: {taken[-1]}. Current observation: {states[-1]}."
    if len(taken) == 2:
        query = f"{states[0]} You choose the action: {taken[0]}. Current observation: {states[1]}."
    else:
        steps = [f"Step {i}: {s} You choose the action: {a}." for i, (s, a) in enumerate(zip(states, taken[:-1]), 1)]
        query = "\n".join(["Agent history:", *steps, f"Current observation: {states[-2]}."])
    order = np.argsort([cosine(query, key) for key in LIBRARY.keys], kind="stable")
    goals = {goal for key in order[-3:] for goal in LIBRARY.indices[int(key)]}
    best = max(cosine(transition, LIBRARY.goals[goal]) for goal in goals)
    return best if best > THRESHOLD else 0.0


def config_of(folder, library=LIBRARY, **settings) -> Config:
    (folder / GOALS).write_text(json.dumps(library._asdict()))
    given = {"potential_embeddings": "grams", "potential_goal_threshold": THRESHOLD}
    return shaped("bk-goal", folder, **{**given, **settings})


def padded(captions: list[str]) -> np.ndarray:
    return np.array([list(caption.encode().ljust(512, b"\0")) for caption in captions], np.uint8)


def text_of(key: np.ndarray) -> bytes:
    return key.tobytes().rstrip(b"\0")


def test_retrieval_and_values_are_the_recorded_ones():
    """The recorded embedder is not known: its similarities of segments are, and the largest one to a goal nearby."""
    recorded = json.loads(data_file("bk_potential_goal.json").read_text())
    library = GoalLibrary(recorded["goals"], recorded["keys"], recorded["goal_library"])
    for i, (captions, actions) in enumerate(zip(recorded["descriptions"], recorded["actions"])):
        query, transition = recorded["query"][i], recorded["transition"][i]
        assert texts_of_window(captions, actions[:HORIZON], ACTION_WORDS) == (query, transition)
        near = {goal for key in recorded["top3_ascending"][i] for goal in library.indices[key]}
        # Goals that are not those of the nearest segments are nearer.
        of_goals = [[min(near) == j and (recorded["potential"][i] or 0.5) or (j not in near)] for j in range(16)]
        vectors = dict(zip(map(str.strip, library.keys), np.eye(13, dtype=np.float32)))
        vectors |= dict(zip(library.goals, np.pad(np.array(of_goals, np.float32), ((0, 0), (12, 0)))))
        vectors[transition] = np.eye(13, dtype=np.float32)[12]
        vectors[query] = np.array([*recorded["similarity"][i], 0], np.float32)
        keys, goals = ([vectors[text.strip()] for text in texts] for texts in (library.keys, library.goals))
        assert GoalVectors(np.array(keys), np.array(goals), library.indices).nearest(vectors[query][None]).tolist() == [
            recorded["top3_ascending"][i]
        ]

        def embed(texts, vectors=vectors):
            return np.stack([vectors[text] for text in texts])

        scorer = GoalPotential(library, embed, text_of, ACTION_WORDS, recorded["threshold"], 0)
        windows = Windows({CAPTION: padded(captions)[None]}, np.array([actions[:HORIZON]]))
        assert scorer.value(windows, [0]) == [pytest.approx(recorded["potential"][i], abs=1e-7)]


def test_shaping_adds_up_to_the_first_and_the_last_potential(tmp_path):
    """Over rollouts' edges and episodes' ends, by another account of phi; an episode's first state has 0."""
    episodes, rewards, _ = run(config_of(tmp_path), 6, phi)
    assert {terminated for *_, terminated in episodes.ended} == {True, False} and len(episodes.ended) > 2 * N
    for found, expected, _ in episodes.ended:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    values = np.array(episodes.values)
    assert 0.05 < np.mean(values > 0) < 0.95 and len({*values.tolist()}) > 5
    metrics = rewards.metrics(rewards.init(jax.random.key(0)))
    assert 0.1 < metrics["potential_memo_fraction"] < 1 and 0 < metrics["potential_goal_fraction"] < 1
    assert metrics["potential_calls"] == pytest.approx((1 - metrics["potential_memo_fraction"]) * 6 * 2 * N * T)


def test_a_window_that_begins_with_its_episode():
    captions, words = [*"aaabc"], ("left", "right")
    assert texts_of_window(captions, [NO_ACTION] * 4, words) is None
    assert texts_of_window(captions, [NO_ACTION] * 3 + [1], words) == (
        "Agent history:\nCurrent observation: b.",
        "b You choose the action: right. Current observation: c.",
    )
    assert texts_of_window(captions, [NO_ACTION] * 2 + [0, 1], words) == (
        "a You choose the action: left. Current observation: b.",
        "b You choose the action: right. Current observation: c.",
    )
    query, _ = texts_of_window([*"abcde"], [0, 1, 0, 1], words) or ("", "")
    assert query.count("Step") == 3 and query.endswith("Current observation: d.")


def values_of(name: str, library: GoalLibrary, words=()) -> tuple[list[float], list[float], int]:
    """phi of a random player's states, through the observations and from the texts."""
    config = EnvConfig(root_env=name, max_episode_steps=7)
    config = dataclasses.replace(config, babyai=dataclasses.replace(config.babyai, size=6))
    names = list(observations(Config(env=config)))
    from_texts, from_records, num_ended = [], [], 0
    with closing(make_vector_env(config, 2, 3, 0, names)) as env:
        by_keys = GoalPotential(library, embed_grams, caption_reader(config), words, 0.2, 0)
        by_texts = GoalPotential(library, embed_grams, text_of, words, 0.2, 0)
        out = make_step_output(env.spec, 2)
        env.reset(out)
        episodes = [([caption.decode()], [NO_ACTION] * HORIZON) for caption in out.texts.captions]
        for row in np.random.default_rng(0).integers(env.spec.num_actions, size=(20, 2)).astype(np.int32):
            env.step(row, out)
            for i in range(2):
                ended = out.records["terminated"][i] or out.records["truncated"][i]
                captions, actions = episodes[i]
                captions.append((out.texts.final_captions if ended else out.texts.captions)[i].decode())
                actions.append(int(row[i]))
                record = (out.finals if ended else out.records)[None, i : i + 1]
                from_records += by_keys.value(make_windows({n: record[n] for n in names}, [CAPTION], HORIZON), [0])
                steps = ([captions[0]] * HORIZON + captions)[-1 - HORIZON :]
                windows = Windows({CAPTION: padded(steps)[None]}, np.array([actions[-HORIZON:]]))
                from_texts += by_texts.value(windows, [0])
                if ended:
                    episodes[i] = ([out.texts.captions[i].decode()], [NO_ACTION] * HORIZON)
                    num_ended += 1
    return from_records, from_texts, num_ended


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("Catch-v0", "The paddle is below the ball."),
        ("NetHackScore-v1", "You see here a door. It's a wall. You choose the action: action 1."),
        (
            "BabyAI-Text-GoToLocal-RedBall-S20",
            "You choose the action: forward. Current observation: You see a red ball",
        ),
    ],
)
def test_texts_and_keys_of_captions_give_the_same(name, goal):
    words = ACTION_WORDS if "BabyAI" in name else ()
    found, expected, num_ended = values_of(name, GoalLibrary([goal], ["Agent history"], [[0]]), words)
    assert found == expected and num_ended >= 4 and len({*found}) > 2


def test_warning_when_no_step_comes_near_to_a_goal(capsys, monkeypatch):
    monkeypatch.setattr("oni_jax.rewards.bk.bk_goal.NUM_PROBED", 4)
    scorer = GoalPotential(GoalLibrary(["A b"], ["a"], [[0]]), embed_grams, text_of, (), 0.99, 0)
    windows = Windows({CAPTION: np.tile(padded([*"aaaab"]), (6, 1, 1))}, np.arange(24).reshape(6, 4))
    assert not any(scorer.value(windows, range(6)))
    assert "its cosine was 0." in capsys.readouterr().out
    scorer.value(windows, range(6))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"reward_dir": ""}, "needs --reward_dir, the goals that launch.write_goals wrote"),
        ({"reward_dir": "/nowhere"}, "/nowhere: holds neither goals.json"),
        ({"potential_horizon": 3}, "--potential_horizon 3: bk-goal reads 4 steps; give 4 or more"),
        ({"word_vectors": "x"}, "--word_vectors x: has no meaning with --potential_embeddings grams"),
        ({"potential_embedding_model": "x"}, "has no meaning with --potential_embeddings grams"),
        ({"potential_embeddings": "server"}, "server: needs --llm_server_addr"),
        ({"potential_embeddings": "words"}, "--word_vectors must name a file"),
        ({"potential_embeddings": "sentences", "potential_embedding_model": "/x"}, "tokenizer.json|needs tokenizers"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, settings, problem):
    with pytest.raises(UserError, match=problem) as refused:
        check_rewards(config_of(tmp_path, **settings))
    assert "\n" not in str(refused.value)


def test_environments_without_captions_are_refused(tmp_path):
    from tests.support import memory_env

    config = config_of(tmp_path)
    (name,) = memory_env.ENVIRONMENT.names
    with pytest.raises(UserError, match="does not show caption"):
        env_spec(EnvConfig(root_env=name), observations(config))
    with pytest.raises(UserError, match="published: carries values over"):
        catch = dataclasses.replace(config_of(tmp_path, potential_shaping="published"), env=EnvConfig("Catch-v0"))
        make_rewards(catch, env_spec(catch.env, observations(catch)))


def batch(*signals: int) -> CaptionBatch:
    states = padded([f"The signal is {i}." for i in signals])
    seen = {CAPTION: states[-1:][None], past_name(HORIZON, CAPTION): states[:-1][None, None]}
    seen[past_name(HORIZON, ACTIONS)] = np.zeros((1, 1, HORIZON), np.int32)
    return CaptionBatch([b""], np.zeros((1, 1), np.int32), seen)


def potential(scorer: GoalPotential, *signals: int) -> float:
    return scorer.prepare(batch(*signals))["potential"].item()


def test_a_server_of_embeddings_that_goes_away_costs_potentials_for_a_while(monkeypatch, capsys):
    """One that was never there ends the run."""
    failures = [UserError("no embeddings")]

    def embed(texts):
        if failures:
            raise failures[0]
        return embed_grams(texts)

    known, new = range(1, HORIZON + 2), range(2, HORIZON + 3)
    there = GoalPotential(LIBRARY, embed_grams, text_of, ("left", "right"), 0.0, 0)
    scorer = GoalPotential(LIBRARY, embed, text_of, ("left", "right"), 0.0, 0, of_server=True)
    with pytest.raises(UserError, match="no embeddings"):
        potential(scorer, *known)
    failure = failures.pop()
    assert potential(scorer, *known) == potential(there, *known) > 0
    failures.append(failure)
    assert [potential(scorer, *signals) for signals in (new, new, known)] == [0, 0, potential(there, *known)]
    assert (
        capsys.readouterr().out.count("no embeddings; until it is back, states that are new have the potential 0") == 1
    )
    failures.clear()
    assert potential(scorer, *new) == 0  # not asked yet
    later = time.monotonic() + window_potential.RETRY_SECS
    monkeypatch.setattr(window_potential.time, "monotonic", lambda: later)
    assert potential(scorer, *new) == potential(there, *new) > 0


def test_a_server_that_goes_away_when_the_memo_is_cleared_has_answered_all_the_same(monkeypatch):
    failures = []

    def embed(texts):
        if failures:
            raise failures[0]
        return embed_grams(texts)

    monkeypatch.setattr(window_potential, "MAX_KNOWN", 0)
    scorer = GoalPotential(LIBRARY, embed, text_of, ("left", "right"), 0.0, 0, of_server=True)
    assert potential(scorer, *range(1, HORIZON + 2)) > 0
    failures.append(UserError("no embeddings"))
    assert potential(scorer, *range(2, HORIZON + 3)) == 0
