"""The answerer of a question: what is named, else what is there."""

import contextlib
import dataclasses

import pytest

from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.annotation.service import AnnotationService
from oni_jax.annotation.stored import check_stored
from oni_jax.answers.answerer import (
    NOBODY,
    SERVER,
    find_answerer,
    models_of,
    open_questions,
    shipped,
    with_chosen_answers,
)
from oni_jax.answers.form import NO_GOAL, AnswerFile, Header, Row, read_answers, write_answers
from oni_jax.envs import catch, registry
from oni_jax.envs.registry import languages
from oni_jax.host.runtime import Every
from oni_jax.rewards.registry import questions
from oni_jax.runs.plan import Plan
from oni_jax.settings.annotation import JUDGE, RECORDED, AnnotationConfig, check_annotation
from oni_jax.settings.config import Config, config_from_json, config_to_json
from oni_jax.settings.fields import UserError, with_values
from oni_jax.training.checks import check_run
from oni_jax.types import Annotation, Item, Query
from tests.support.asking import start_judge

NETHACK = languages()["nethack"]
KILL, WALL, NEW = (b"You kill the newt!",), (b"It's a wall.",), (b"A message that nobody was asked about.",)


@pytest.fixture
def file(tmp_path):
    """A user's file of two answers."""
    rows: dict[Item, Row] = {KILL: Row((encode_label(1, 1.0),), 3), WALL: Row((encode_label(0, 0.0),), 5)}
    path = str(tmp_path / "mine.jsonl.gz")
    write_answers(path, AnswerFile(Header("nethack", "classification", ("combat",), "my-llm"), rows))
    return path


def asks(kind="classification", language=NETHACK, **settings):
    return find_answerer(with_values(AnnotationConfig(), settings), language, kind)


@pytest.mark.parametrize(
    "settings, model, rest",
    [
        ({}, "Claude", NOBODY),
        ({"goal_key": "stairs"}, "Claude", NOBODY),
        ({"answers": RECORDED}, "Claude", NOBODY),
        ({"answers": RECORDED, "llm_server_addr": "a:1"}, "Claude", SERVER),
        ({"llm_server_addr": "a:1"}, None, SERVER),
        ({"answers": JUDGE}, None, JUDGE),
        ({"judge_wrong_fraction": 0.1}, None, JUDGE),
        ({"goal": "The player wants fun."}, None, JUDGE),
        ({"prompt_version": "reworded"}, None, JUDGE),
    ],
)
def test_answerer_of_nethack_by_settings(settings, model, rest):
    found = asks(**settings)
    assert (found.file.header.model if found.file else None, found.asks) == (model, rest)


def test_judge_answers_without_a_file():
    assert asks(language=languages()["catch"]).asks == JUDGE
    assert asks(language=NETHACK._replace(name="")).asks == JUDGE
    assert asks(language=None).asks == JUDGE


def test_models_are_named_first_to_last(file):
    config = AnnotationConfig(answers=file, goal_key="combat")
    assert [*models_of(config, NETHACK, "classification")] == ["my-llm"]
    both = dataclasses.replace(config, llm_server_addr="a:1", llm_model="other")
    assert models_of(both, NETHACK, "classification") == {"my-llm": "my-llm, recorded", "other": "other at a:1"}
    assert [*models_of(AnnotationConfig(answers=JUDGE), NETHACK, "classification")] == [JUDGE_MODEL]


@pytest.mark.parametrize(
    "kind, settings, told",
    [
        ("classification", {"answers": "recordd"}, "--answers recordd: is neither recorded, judge, nor a file"),
        ("classification", {"answers": RECORDED, "goal": "Fun."}, "not to --goal"),
        ("classification", {"answers": "FILE"}, "holds none under --goal_key defaultgoal; it has combat"),
        ("classification", {"answers": "FILE", "goal": "Fun."}, "was given under goal keys"),
        ("classification", {"answers": "FILE", "prompt_version": "reworded"}, "was given under goal keys"),
        ("suggestions_strict", {"answers": JUDGE}, "--goal_parser strict: can't read the rule-based judge"),
        ("ranking", {"answers": "FILE", "goal_key": "combat"}, "kind classification, not ranking"),
    ],
)
def test_answers_that_do_not_fit_are_refused(file, kind, settings, told):
    settings = {name: file if value == "FILE" else value for name, value in settings.items()}
    with pytest.raises(UserError) as caught:
        asks(kind, **settings)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_answers_of_another_environment_are_refused(file):
    with pytest.raises(UserError, match="are of nethack, not of catch"):
        asks(language=languages()["catch"], answers=file, goal_key="combat")
    with pytest.raises(UserError, match="no name"):
        asks(language=NETHACK._replace(name=""), answers=file)


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"answers": RECORDED, "judge_latency_secs": 1.0}, "--answers replaces"),
        ({"answers": JUDGE, "llm_server_addr": "a:1"}, "leave --llm_server_addr out"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings, told):
    with pytest.raises(UserError, match=told):
        check_annotation(with_values(AnnotationConfig(), settings))


def run_of(**values) -> Config:
    return with_values(Config(), {"llm_reward_type": "online_cls", "llm_reward_coeff": 0.1, **values})


def test_a_run_says_who_answers_for_its_later_starts():
    for config, answers in (
        (run_of(), RECORDED),
        (run_of(root_env="Catch-v0"), JUDGE),
        (run_of(llm_server_addr="a:1"), ""),
        (run_of(llm_reward_type="none", llm_reward_coeff=0.0), ""),
    ):
        assert with_chosen_answers(config, questions(config), Plan(config).language).annotation.answers == answers


def test_kinds_of_query_that_are_answered_differently_choose_anew_at_each_start():
    config = run_of(root_env="CrafterTextEnv-v1", caption="state", goal_suggester="llm")
    ellm = with_values(config.reward, {"llm_reward_type": "ellm"})
    both = dataclasses.replace(config, others=((ellm, config.annotation),))
    assert [kind for _, kind in questions(both)] == ["classification", "suggestions"]
    found = with_chosen_answers(both, questions(both), Plan(both).language)
    assert {term.annotation.answers for term in found.terms()} == {""}


def test_a_run_that_is_older_than_recorded_answers_keeps_its_judge():
    text = config_to_json(run_of()).replace('    "answers": "",\n', "")
    assert '"answers"' not in text and config_from_json(text).annotation.answers == JUDGE
    assert config_from_json(config_to_json(run_of())).annotation.answers == ""
    assert config_from_json('{"env": {"root_env": "Catch-v0"}}').annotation.answers == ""  # a config, not a run's


@contextlib.contextmanager
def service_of(config: AnnotationConfig, store: LabelStore):
    with contextlib.ExitStack() as stack:
        service = AnnotationService(open_questions([(config, "classification")], NETHACK, stack), store)
        stack.callback(service.close)
        yield service


def polled(service: AnnotationService, done) -> list[Annotation]:
    found, timed_out = [], Every(30.0)
    while not done(found, service.stats()):
        found += service.poll()
        assert not timed_out(), (found, service.stats())
    return found


def test_recorded_answers_come_first_and_others_stay_unanswered(file, tmp_path, capsys):
    config, store = AnnotationConfig(answers=file, goal_key="combat"), LabelStore(str(tmp_path / "labels.sqlite"))
    with service_of(config, store) as service:
        service.submit([Query(item) for item in (KILL, NEW, WALL)])
        found = polled(service, lambda found, stats: stats["labels_unanswered"] == 1 and len(found) == 3)
        assert service.stats()["labels_held"] == 2 and service.stats()["labels_asked"] == 0
        digest = service.labels_of.removeprefix("my-llm ")
    assert {x.item: x.answer for x in found} == {KILL: b"1 1.0", WALL: b"0 0.0", NEW: None}
    assert {x.item: x.answer for x in store.all("my-llm", digest)} == {KILL: b"1 1.0", WALL: b"0 0.0"}
    assert "classification: 2 answers of my-llm, recorded" in capsys.readouterr().out


def test_an_answer_in_the_store_is_not_written_again(file, tmp_path):
    config, store = AnnotationConfig(answers=file, goal_key="combat"), LabelStore(str(tmp_path / "labels.sqlite"))
    for _ in range(2):
        with service_of(config, store) as service:
            polled(service, lambda found, stats: len(found) == 2)
            digest = service.labels_of.removeprefix("my-llm ")
    assert store.count("my-llm", digest) == 2


def test_answers_that_differ_from_those_in_the_store_are_refused(file, tmp_path):
    config, store = AnnotationConfig(answers=file, goal_key="combat"), LabelStore(str(tmp_path / "labels.sqlite"))
    with contextlib.ExitStack() as stack:
        (question,) = open_questions([(config, "classification")], NETHACK, stack)
    kind, digest = question.prompt.kind, question.prompt.digest
    store.put_many("my-llm", digest, [(Annotation(KILL, b"1 1.0"), ""), (Annotation(NEW, b"0 0.0"), "")])
    check_stored(store, kind, question.recorded, question.models, digest)
    store.put_many("my-llm", digest, [(Annotation(WALL, b"1 1.0"), "")])
    with pytest.raises(UserError, match="holds other answers of my-llm than those recorded, such as to b\"It's a wall"):
        check_stored(store, kind, question.recorded, question.models, digest)
    other = LabelStore(str(tmp_path / "other.sqlite"))
    other.put_many("my-llm", digest, [(Annotation(NEW, b"nonsense"), "")])
    with pytest.raises(UserError, match="a row is no classification"):
        check_stored(other, kind, question.recorded, question.models, digest)


def test_recorded_suggestions_are_read_as_published_too():
    found = find_answerer(AnnotationConfig(), languages()["crafter"], "suggestions_strict")
    assert found.file is not None and found.asks == NOBODY


def test_world_without_judge_rules_learns_from_a_file(tmp_path, monkeypatch):
    language = catch.ENVIRONMENT.language
    assert language
    lake = catch.ENVIRONMENT._replace(names=("Lake-v0",), language=language._replace(judge_rules="", name="lake"))
    monkeypatch.setattr(registry, "ENVIRONMENTS", [*registry.ENVIRONMENTS, lake])
    path, header = str(tmp_path / "lake.jsonl"), Header("lake", "classification", ("defaultgoal",), "m")
    write_answers(path, AnswerFile(header, {(b"You miss.",): Row((encode_label(0, 0.0),), 1)}), languages())
    config = run_of(root_env="Lake-v0", encoder_custom="mlp_encoder")
    check_run(with_values(config, {"answers": path}))
    with pytest.raises(UserError, match="no rules for the rule-based judge"):
        check_run(config)


def test_a_server_answers_what_a_file_lacks(file, tmp_path):
    judge, store = start_judge(), LabelStore(str(tmp_path / "labels.sqlite"))
    with contextlib.closing(judge):
        config = AnnotationConfig(answers=file, goal_key="combat", llm_server_addr=judge.address, llm_model="judge")
        with service_of(config, store) as service:
            service.submit([Query(item) for item in (KILL, NEW, WALL)])
            found = polled(service, lambda found, stats: len(found) == 3 and stats["labels_asked"])
            assert service.stats()["labels_asked"] == 1 and service.stats()["labels_unanswered"] == 0
            digest = service.labels_of.split()[-1]
    assert all(x.answer is not None for x in found)
    assert store.count("my-llm", digest) == 2 and store.count("judge", digest) == 1


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name)
def test_the_package_s_answers_are_whole(path):
    file = read_answers(str(path), languages())
    assert path.name == f"{file.header.environment}_{file.header.kind}.jsonl.gz"
    assert file.header.model and file.header.recorded and file.header.licence == "Apache-2.0"
    assert all(row.answers[0] is not None for row in file.rows.values())
    of_other_goals = {answer is not None for row in file.rows.values() for answer in row.answers[1:]}
    assert of_other_goals <= ({True, False} if path.name.startswith("nethack_classification") else {True})
    assert file.header.goals != (NO_GOAL,) or len(file.header.goals) == 1


def test_the_package_s_answers_are_small():
    assert sum(path.stat().st_size for path in shipped()) < 2 << 20
