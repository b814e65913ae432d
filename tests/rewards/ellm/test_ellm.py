"""ELLM's reward where an LLM suggests goals: who is asked about first, what the world is given, what is counted."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.rewards.ellm import ellm, goal_rewards
from oni_jax.rewards.ellm.ellm import Matcher
from oni_jax.rewards.registry import check_rewards, make_rewards, observations_read, questions
from oni_jax.rewards.terms import RewardSum
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from oni_jax.types import Annotation, CaptionBatch, StepCaptions
from tests.rewards.embeddings.test_embeddings import server
from tests.support.documented import undocumented

GRASS, COW, HUNGRY_COW = b"you see grass.", b"you see cow.", b"you see cow. you feel hungry."


def config_of(suggester: str = "llm", server: str = "", goals=(), **reward) -> Config:
    settings = with_values(GoalConfig(), dict(goal_suggester=suggester, **dict(goals)))
    return Config(
        EnvConfig(root_env="CrafterTextEnv-v1", goals=settings),
        network=NetworkConfig(encoder_custom="generic_encoder"),
        reward=with_values(RewardConfig(), {"llm_reward_type": "ellm", "llm_reward_coeff": 1.0, **reward}),
        annotation=AnnotationConfig(llm_server_addr=server),
    )


def make(config: Config | None = None) -> RewardSum:
    config = with_chosen_env(config or config_of())
    check_rewards(config)
    return make_rewards(config, env_spec(config.env, observations_read(config)))


def observe(rewards: RewardSum, *steps: bytes) -> None:
    names = list(dict.fromkeys(steps))
    batch = CaptionBatch(names, np.array([[names.index(step)] for step in steps], np.int32), {})
    rewards.observe(StepCaptions(batch, batch))


def asked(rewards: RewardSum, limit: int = 100) -> list[bytes]:
    return [query.item[0] for query in rewards.queries(limit)]


def answer(rewards: RewardSum, item: bytes, text: bytes | None) -> None:
    rewards.ingest([Annotation((item,), text)])


def names_of(worths: np.ndarray) -> list[str]:
    goals = env_spec(config_of().env).goals
    return [goals[i] for i in np.flatnonzero(worths[:-1])]


def test_the_most_frequent_are_asked_first_and_once():
    rewards = make()
    observe(rewards, GRASS, COW, COW, HUNGRY_COW, b"you see sand.", GRASS)
    assert asked(rewards, 2) == [GRASS, COW]  # the newest, which is asked first, last
    observe(rewards, COW, GRASS)
    assert asked(rewards) == [b"you see sand.", GRASS, COW]  # until there are answers; nobody asks twice
    answer(rewards, COW, b"- eat cow")
    observe(rewards, COW)
    assert asked(rewards) == [b"you see sand.", GRASS]


def test_few_wait_for_an_answer_at_a_time(monkeypatch):
    monkeypatch.setattr(goal_rewards, "MAX_ASKED", 2)
    rewards = make()
    observe(rewards, *(b"you see %d." % i for i in range(5)))
    first = asked(rewards)
    assert len(first) == 2
    observe(rewards, b"you see 4.")  # more frequent now
    assert asked(rewards) == first
    answer(rewards, first[0], b"- sleep")
    observe(rewards, first[0])
    assert asked(rewards) == [first[1], b"you see 4."]


def test_answers_are_worth_what_they_name_in_all_captions_that_read_alike():
    rewards = make()
    observe(rewards, COW, HUNGRY_COW, GRASS)
    assert rewards.suggested() == {}
    answer(rewards, COW, b"- eat cow\n- fly to the moon")
    found = rewards.suggested()
    assert {*found} == {COW, HUNGRY_COW} and names_of(found[COW]) == ["eat cow"]
    assert rewards.suggested() == {}
    later = b"you see cow. you feel hurt."
    observe(rewards, later, GRASS)
    assert names_of(rewards.suggested()[later]) == ["eat cow"]
    metrics = rewards.metrics(())
    assert undocumented(f"reward/{name}" for name in metrics) == []
    assert metrics["goal_coverage"] == 0  # its answer was there, but not when the environment acted
    observe(rewards, later, GRASS)
    metrics = rewards.metrics(())
    assert metrics["goal_coverage"] == 0.5 and metrics["goals_unmatched_fraction"] == 0.5


def test_captions_put_aside_are_not_covered_and_make_room(monkeypatch):
    """The labeller, which has asked once more, would never answer it again: it must not be waited for."""
    monkeypatch.setattr(goal_rewards, "MAX_ASKED", 1)
    rewards = make()
    observe(rewards, GRASS, GRASS, COW)
    assert asked(rewards) == [GRASS]
    answer(rewards, GRASS, None)
    observe(rewards, GRASS, GRASS, GRASS, COW)
    assert asked(rewards) == [GRASS, COW] and rewards.suggested() == {}  # once more, last: it may have been dropped
    answer(rewards, COW, None)
    assert asked(rewards) == [COW]  # no more are asked again than at first
    answer(rewards, COW, None)
    observe(rewards, GRASS, COW)
    assert asked(rewards) == []
    measured = rewards.metrics(rewards.init(np.zeros(2, np.uint32)))
    assert measured["goal_coverage"] == measured["captions_answered"] == 0
    answer(rewards, GRASS, b"- chop grass")  # another run has stored it
    assert names_of(rewards.suggested()[GRASS]) == ["chop grass"]


def test_no_more_is_asked_than_the_backlog_takes():
    config = config_of()
    rewards = make(dataclasses.replace(config, annotation=dataclasses.replace(config.annotation, llm_max_backlog=2)))
    observe(rewards, GRASS, COW, HUNGRY_COW, b"you see sand.")
    assert len(asked(rewards)) == 2


def test_a_server_of_embeddings_that_fails_costs_goals_for_a_while(monkeypatch, capsys):
    monkeypatch.setattr(ellm, "RETRY_SECS", 0.01)
    failures = [UserError("no embeddings"), UserError("no embeddings")]

    def embed(texts):
        if failures:
            raise failures.pop()
        return np.array([[text == "eat cow", text == "have a steak", 0.1] for text in texts], np.float32)

    matcher = Matcher(["eat cow"], GoalConfig(threshold=0.5), embed)
    match = ellm.InBackground(matcher.match)
    assert match([(COW, b"- eat cow")]) == []
    found, started = [], time.monotonic()
    while not found and time.monotonic() - started < 10:
        found += match([])
    ((item, worths),) = found
    assert item == COW and worths[0] > 0.9 and capsys.readouterr().out.count("tried again") == 2


def test_answers_of_the_store_come_before_their_captions():
    rewards = make()
    answer(rewards, GRASS, b"- chop grass")
    observe(rewards, GRASS)
    assert asked(rewards) == [] and names_of(rewards.suggested()[GRASS]) == ["chop grass"]


def test_number_of_seen_captions_is_bounded(monkeypatch):
    monkeypatch.setattr(ellm, "MAX_KNOWN", 3)
    rewards = make()
    answer(rewards, COW, b"- eat cow")
    for i in range(10):
        observe(rewards, b"you see %d." % i, COW)
        assert COW in rewards.suggested()


def test_words_that_mean_the_same_by_embeddings():
    vectors = {"eat cow": [1, 0], "chop tree": [0, 1], "have a steak": [0.96, 0.28], "sing": [-1, 0]}

    def embed(texts):
        return np.array([vectors[text] for text in texts], np.float32)

    matcher = Matcher(["eat cow", "chop tree"], GoalConfig(threshold=0.9), embed)
    np.testing.assert_allclose(matcher.worths(b"- have a steak\n- sing"), [0.96, 0, 1])
    assert (matcher.num_suggested, matcher.num_unmatched) == (2, 1)
    both = config_of(goals={"goal_similarity": "embeddings"}, potential_embeddings="grams")
    rewards = make(both)
    observe(rewards, GRASS)
    answer(rewards, GRASS, b"- chop grass")
    assert names_of(rewards.suggested()[GRASS]) == ["chop grass"]


def test_a_restart_embeds_nothing_anew(tmp_path):
    def embed(body, number):
        rows = [np.random.default_rng(list(text.encode())).normal(size=8).tolist() for text in body["input"]]
        return 200, {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}

    with server(embed) as (annotation, asked):
        settings = config_of(goals={"goal_similarity": "embeddings"}, potential_embeddings="server")
        run = RunConfig(train_dir=str(tmp_path), experiment="run")
        config = dataclasses.replace(settings, annotation=annotation, run=run)
        (tmp_path / "run").mkdir()
        counts = []
        for _ in range(2):
            rewards, started = make(config), time.monotonic()
            observe(rewards, COW)
            answer(rewards, COW, b"- eat cow")
            while not (found := rewards.suggested()) and time.monotonic() - started < 10:
                time.sleep(0.01)
            assert names_of(found[COW]) == ["eat cow"]
            rewards.save()
            counts.append(len(asked))
        assert counts[0] == counts[1] > 0


def test_caption_seen_while_its_answer_is_matched_is_not_asked_again(tmp_path):
    """It would be waited for without end, until nothing else is asked."""
    may_answer = threading.Event()

    def embed(body, number):
        may_answer.wait(10 * (b"eat" in str(body).encode()))
        rows = [np.random.default_rng(list(text.encode())).normal(size=8).tolist() for text in body["input"]]
        return 200, {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]}

    with server(embed) as (annotation, _):
        settings = config_of(goals={"goal_similarity": "embeddings"}, potential_embeddings="server")
        run = RunConfig(train_dir=str(tmp_path), experiment="run")
        rewards, started = make(dataclasses.replace(settings, annotation=annotation, run=run)), time.monotonic()
        observe(rewards, COW)
        answer(rewards, COW, b"- eat cow")
        observe(rewards, COW)
        may_answer.set()
        while not rewards.suggested() and time.monotonic() - started < 10:
            time.sleep(0.01)
        observe(rewards, COW)
        assert asked(rewards) == []


def test_the_strict_parser():
    """An answer that it can't read, kept by a run of the other parser, is none: it covers no step."""
    rewards = make(config_of(server="localhost:1", goals={"goal_parser": "strict"}))
    observe(rewards, COW, GRASS)
    answer(rewards, COW, b"- eat cow\n- sleep")
    answer(rewards, GRASS, b"1. chop grass")
    assert {caption: names_of(worths) for caption, worths in rewards.suggested().items()} == {COW: ["sleep", "eat cow"]}
    observe(rewards, COW, GRASS)
    assert asked(rewards) == [] and rewards.metrics(())["goal_coverage"] == 0.5


def test_an_llm_is_asked_only_where_it_suggests():
    def chosen(config: Config) -> tuple[str, list[str]]:
        config = with_chosen_env(config)
        return config.env.goals.suggester, [kind for _, kind in questions(config)]

    assert chosen(config_of("auto")) == ("oracle", [])
    assert chosen(config_of("auto", "localhost:1")) == ("llm", ["suggestions"])
    assert chosen(config_of("all", "localhost:1")) == ("all", [])
    assert chosen(config_of("llm")) == ("llm", ["suggestions"])


@pytest.mark.parametrize(
    "config, error",
    [
        (config_of(llm_reward_type="none", llm_reward_coeff=0.0), "--goal_suggester llm: nothing asks it without"),
        (config_of("oracle", goals={"goal_parser": "strict"}), "--goal_parser strict: has no meaning without"),
        (config_of("all", goals={"goal_similarity": "embeddings"}), "--goal_similarity embeddings: has no meaning"),
        (
            config_of(potential_embedding_model="m"),
            "potential_embedding_model m: has no meaning with --goal_similarity",
        ),
        (
            config_of(potential_embeddings="server"),
            "potential_embeddings server: has no meaning with --goal_similarity",
        ),
        (config_of(potential_horizon=3), "--potential_horizon 3: has no meaning without --llm_reward_type bk"),
        (
            config_of(goals={"goal_similarity": "embeddings"}, potential_embeddings="words"),
            "--word_vectors must name a file",
        ),
    ],
)
def test_settings_that_do_not_fit(config, error):
    with pytest.raises(UserError, match=error):
        check_rewards(with_chosen_env(config))


def test_events_have_no_goals_suggested():
    config = Config(EnvConfig(root_env="CrafterTextEnv-v1", caption="event", goals=GoalConfig(suggester="llm")))
    with pytest.raises(UserError, match="--caption event: --goal_suggester llm suggests goals for states"):
        env_spec(config.env)
