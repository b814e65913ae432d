"""Held-out messages stay out of training; what is counted is counted right; the models learn what can be learnt."""

import json
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from benchmarks import reward_model
from oni_jax.envs.nethack.judge_rules import judge_caption, message_value
from oni_jax.types import Annotation

SMALL = {"encoder_msg_model": "lt_cnn_small", "reward_model_lr": 3e-3, "reward_model_batch_size": 64}
MONSTERS = (
    "newt",
    "jackal",
    "gnome",
    "sewer rat",
    "kobold",
    "grid bug",
    "goblin",
    "rock piercer",
    "hill orc",
    "acid blob",
)
MESSAGES = [
    f"{what} the {'' if size == '-' else size + ' '}{monster}!".encode()
    for what in ("You kill", "You miss", "You see here")
    for size in ("-", "small", "large", "dead", "peaceful")
    for monster in MONSTERS
]


def test_the_split_is_one():
    split = reward_model.split_messages(MESSAGES, seed=1)
    assert len(split.held_out) == 30 and sorted(split.train + split.held_out) == sorted(MESSAGES)


def test_messages_are_real_distinct_and_kept(tmp_path):
    path = tmp_path / "messages.jsonl"
    messages = reward_model.load_or_collect(str(path), 20, seed=1)
    assert len(set(messages)) == 20 and b"" not in messages
    assert [json.loads(line) for line in path.read_text().splitlines()] == [m.decode("latin-1") for m in messages]
    path.write_text("".join(f'"{i}"\n' for i in range(20)))
    assert reward_model.load_or_collect(str(path), 5, seed=1) == [b"0", b"1", b"2", b"3", b"4"]


def test_shares_of_a_classifier():
    labels, rewards = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 0])
    assert reward_model.confusion(rewards, labels).tolist() == [[3, 1], [1, 1]]
    shares = reward_model.classified(rewards, labels)
    assert shares == {"accuracy": 4 / 6, "balanced_accuracy": 0.625, "precision": 0.5, "recall": 0.5}
    assert reward_model.classified(0 * rewards, labels)["precision"] == 0


def test_ties_count_for_no_accuracy():
    rewards, labels = np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]), np.array([0, 1, 1, 2])
    assert reward_model.pair_confusion(rewards, labels).tolist() == [[1, 0], [1, 1], [0, 1]]
    assert reward_model.ranked(rewards, labels) == {"accuracy": 2 / 3}
    values = np.array([[1, 0], [-1, 1], [0, 1], [0, 0]])
    accuracy = reward_model.accuracy_by_values(rewards, labels, values)
    assert accuracy == {"harmful_neutral": 0.0, "neutral_helpful": 0.5, "harmful_helpful": 1.0}


def test_pairs_are_of_two_messages():
    pairs = reward_model.random_pairs(5, 1000, np.random.default_rng(0))
    assert (pairs[:, 0] != pairs[:, 1]).all() and set(pairs.ravel()) == set(range(5))


@pytest.fixture
def answered(monkeypatch):
    """The messages that a reward gets to know labels of."""
    messages: set[bytes] = set()
    make_rewards = reward_model.make_rewards

    def spied(config, spec):
        rewards = make_rewards(config, spec)
        scorer = rewards.terms[0].reward.scorer
        assert scorer
        ingest = scorer.ingest

        def noted(annotations: Sequence[Annotation]) -> None:
            messages.update(message for annotation in annotations for message in annotation.item)
            ingest(annotations)

        scorer.ingest = noted
        return rewards

    monkeypatch.setattr(reward_model, "make_rewards", spied)
    return messages


@pytest.fixture
def quick_compiling():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
def test_a_classifier_learns_from_the_messages_not_held_out(answered, quick_compiling, monkeypatch):
    def train(model, secs: float) -> float:
        for _ in range(20):
            model.step()
        return 1.0

    monkeypatch.setattr(reward_model.Model, "train", train)
    split = reward_model.split_messages(MESSAGES, seed=1)
    figures = reward_model.measure_classification(split, SMALL, max_secs=3.0, seed=1)
    helpful = sum(judge_caption("defaultgoal", m)[0] for m in split.held_out)
    assert answered == set(split.train)
    assert np.sum(figures["confusion"], axis=1).tolist() == [30 - helpful, helpful]
    assert len(figures["missed"]) == figures["confusion"][1][0]
    assert figures["gradient_steps"] == 60 and [point["secs"] for point in figures["curve"]] == [1.0, 2.0, 3.0]
    assert figures["train"]["accuracy"] > 0.9


@pytest.mark.slow
def test_ranking_by_what_messages_are_worth_is_all_right(answered, quick_compiling, monkeypatch):
    def worth(model, messages: Sequence[bytes]) -> np.ndarray:
        return np.array([message_value("defaultgoal", message) for message in messages], np.float32)

    monkeypatch.setattr(reward_model.Model, "step", lambda model: None)
    monkeypatch.setattr(reward_model.Model, "rewards", worth)
    split = reward_model.split_messages(MESSAGES, seed=1)
    figures = reward_model.measure_ranking(split, 1000, SMALL, max_secs=0.0, seed=1)
    assert answered == set(split.train) and figures["num_train_pairs"] >= 1000
    assert figures["held_out"] == figures["train"] == {"accuracy": 1.0}
    assert set(figures["accuracy_of"].values()) == {1.0}
    (first, wrong), (wrong_too, second), ties = figures["confusion"]
    assert wrong == wrong_too == 0 and first > 0 and second > 0
    assert first + second + sum(ties) == reward_model.NUM_HELD_OUT_PAIRS and sum(ties) > 0
