"""Rewards of an agent of several goals: each step pays what its episode's goal says, for every type that can."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.rewards.registry import REWARD_TYPES, check_rewards, make_rewards, observations_read, term_labels
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.types import EPISODE_GOAL, StepCaptions
from tests.rewards import test_conformance as each
from tests.rewards.built_in import BUILT_IN
from tests.rewards.test_conformance import files, little_to_compile  # noqa: F401
from tests.support.labelled import labelled

KEYS = ("combat", "gold", "stairs")
ABLE = [name for name in BUILT_IN if REWARD_TYPES[name].by_goal]
UNABLE = [name for name in BUILT_IN if not REWARD_TYPES[name].by_goal]
KINDS = [*ABLE, each.OR_MODEL]
LOOKED_UP = ("online_cls", "cosine-bow")  # the models of others begin with other weights


def config_of(name: str, found: dict[str, str], keys=KEYS) -> Config:
    config = each.config_of(name, found)
    annotation = dataclasses.replace(config.annotation, goal="", goal_key=",".join(keys))
    network = dataclasses.replace(config.network, goal_conditioned=len(keys) > 1)
    return with_chosen_env(dataclasses.replace(config, annotation=annotation, network=network))


def make(config: Config) -> RewardSum:
    check_rewards(config)
    return make_rewards(config, env_spec(config.env, observations_read(config)))


def seen(captions: StepCaptions, goals: np.ndarray) -> StepCaptions:
    """The captions with the goals [T + 1, B] of the steps."""
    before = captions.before._replace(observations={EPISODE_GOAL: goals[:-1]})
    return StepCaptions(before, captions.caused._replace(observations={EPISODE_GOAL: goals[1:]}))


def taught(rewards: RewardSum, first_question: int):
    """The state after some answers, whose labels differ by the goal."""
    state = rewards.init(jax.random.key(0))
    for seed in range(2):
        rewards.observe(each.captions_of(seed=seed))
        answers = [
            labelled(item, (sum(map(sum, item)) + question + first_question) % 2)._replace(question=question)
            for item, question in rewards.queries()
        ]
        rewards.ingest(answers)
        state = rewards.train_step(state)
    return state


@pytest.mark.parametrize("name", KINDS)
def test_step_pays_what_its_goal_alone_would_pay(name, files):  # noqa: F811
    together = make(config_of(name, files))
    goals = np.random.default_rng(0).integers(0, len(KEYS), (each.T + 1, each.B)).astype(np.int32)
    steps = each.trajectory_of(observations={EPISODE_GOAL: goals})
    captions = seen(each.captions_of(), goals)
    state = taught(together, 0)
    paid = together.score(state, steps, together.prepare(captions), each.KEY).rewards
    assert paid.shape == (len(KEYS), each.T, each.B)
    for i, key in enumerate(KEYS):
        assert not np.asarray(paid[i])[goals[:-1] != i].any()
        if name in LOOKED_UP:
            alone = make(config_of(name, files, (key,)))
            (expected,) = alone.score(taught(alone, i), steps, alone.prepare(captions), each.KEY).rewards
            np.testing.assert_array_equal(paid[i], np.where(goals[:-1] == i, expected, 0))
    assert np.asarray(paid).any()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "cosine-bow"])
def test_item_is_asked_under_each_goal_once(name, files):  # noqa: F811
    rewards = make(config_of(name, files))
    rewards.observe(each.captions_of())
    queries = rewards.queries()
    assert {question for _, question in queries} == {0, 1, 2} and len({*queries}) == len(queries)
    items = [{item for item, asked in queries if asked == question} for question in range(3)]
    assert items[0] == items[1] == items[2]
    rewards.ingest([labelled(item, 1)._replace(question=question) for item, question in queries if question != 1])
    rewards.observe(each.captions_of())
    again = {question for item, question in rewards.queries() if item in items[0]}
    assert again == {1}


def test_reward_of_each_goal_has_its_name(files):  # noqa: F811
    config = config_of("online_cls", files)
    assert term_labels(config) == make(config).labels == ("online_cls_combat", "online_cls_gold", "online_cls_stairs")


@pytest.mark.parametrize("name", UNABLE)
def test_type_that_pays_alike_under_all_goals_is_refused_by_name(name, files):  # noqa: F811
    with pytest.raises(UserError, match=f"--goal_key combat,gold,stairs: --llm_reward_type {re.escape(name)} pays"):
        config_of(name, files)


def test_one_goal_changes_nothing(files):  # noqa: F811
    config = config_of("online_cls", files, ("combat",))
    assert config.goals() == () and not config.env.episode_goal.names and not config.network.goal_input
    assert make(config).labels == ("online_cls",) and EPISODE_GOAL not in observations_read(config)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"goal": "Fight."}, "--goal replaces it"),
        ({"goal_conditioned": False}, "add --goal_conditioned"),
        ({"goal_suggester": "oracle"}, "leave --goal_suggester oracle out"),
        ({"goal_texts": "a|b|c"}, "--goal_texts: has no meaning without --goal_input text"),
        ({"goal_input": "text", "goal_texts": "a|b"}, "--goal_texts a.b: give one for each"),
        ({"goal_weights": "1,2"}, "--goal_weights 1,2: give one for each"),
        ({"goal_key": "gold", "goal_input": "index", "goal_conditioned": False}, "--goal_input index: has no meaning"),
        ({"goal_key": "gold", "goal_steps": 3, "goal_conditioned": False}, "--goal_steps 3: has no meaning"),
    ],
)
def test_setting_that_does_not_fit_is_refused(changes, words, files):  # noqa: F811
    config = each.config_of("online_cls", files)
    given = {
        "goal": "",
        "goal_key": "combat,gold,stairs",
        "goal_conditioned": True,
        "goal_suggester": "auto",
        **changes,
    }
    with pytest.raises(UserError, match=words):
        with_chosen_env(with_values(config, given))


def test_classifier_values_no_caption_of_steps_that_it_does_not_pay(files):  # noqa: F811
    rewards = make(config_of("online_cls_reward_model", files))
    goals = np.zeros((each.T + 1, each.B), np.int32)
    goals[0, 0] = 1
    captions = each.captions_of()
    of_each = rewards.prepare(seen(captions, goals))
    valued = [{row.tobytes().rstrip(b"\0") for row in x["messages"][x["used"]]} - {b""} for x in of_each]
    (first,) = {captions.before.captions[captions.before.index[0, 0]][:256].rstrip(b"\0")}
    assert valued[1] <= {first} and len(valued[0]) > 2 and valued[2] == set()
    rewards.observe(captions)
    assert {question for _, question in rewards.queries()} == {0, 1, 2}  # it asks about all
