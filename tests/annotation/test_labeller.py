import asyncio
import contextlib
import dataclasses

import pytest
from aiohttp import web

from oni_jax.annotation import labeller as labeller_module
from oni_jax.annotation import pacing, prompts
from oni_jax.annotation.client import Client
from oni_jax.annotation.judge_answers import Reader
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.labeller import MAX_ITEM_BYTES, Labeller
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.types import Annotation, Answer
from tests.annotation.fake_server import choices, fake_server, labels, refusal, texts
from tests.support.asking import LANGUAGE, label_of, load_prompt
from tests.support.labelled import labelled

CONFIG = AnnotationConfig(llm_api="completions", llm_timeout_secs=0.3, llm_batch_size=8, llm_max_in_flight=4)
WAIT_SECS = 8.0
ABOUT = (LANGUAGE, "classification")


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(pacing, "MIN_BACKOFF_SECS", 0.01)
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.05)
    monkeypatch.setattr(labeller_module, "MAX_BACKOFF_SECS", 0.05)


@dataclasses.dataclass
class Outcome:
    annotations: list
    forgotten: list
    readmitted: list
    asked: list
    stats: dict
    answers: tuple = ()

    @property
    def messages(self):
        """Those that got a label."""
        return sorted(item[0] for item, answer, _ in self.annotations if answer is not None)

    @property
    def unknown(self):
        return sorted(item[0] for item, answer, _ in self.annotations if answer is None)


def run(script, store, num_messages=20, config=CONFIG, until=None, submissions=None, wait_secs=WAIT_SECS, kind=ABOUT):
    """Labels numbered messages at a scripted server until `until(stats)`; by default until all have a label.

    kind: environment's language, and name of the kind of query; NetHack's classification when left out.
    """
    submissions = submissions or [[(b"message %d" % i,) for i in range(num_messages)]]
    until = until or (lambda stats: stats["labels_held"] + stats["put_aside"] >= num_messages)

    async def body():
        async with fake_server(script, Reader(kind[0]).judge_prompt) as server:
            full = dataclasses.replace(config, llm_server_addr=server.address)
            prompt = prompts.load_prompt(full, *kind)  # type: ignore
            async with Client(full, prompt) as client:
                outcome = Outcome([], [], [], [], {})
                emit, forget = outcome.annotations.extend, outcome.forgotten.extend
                readmit = outcome.readmitted.extend
                labeller = Labeller(full, client, store, prompt, emit, forget, readmit=readmit)
                labeller.emit_stored()
                running = asyncio.ensure_future(labeller.run())
                for items in submissions:
                    labeller.submit(items)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_secs):
                        while not until(labeller.stats()) and not running.done():
                            await asyncio.sleep(0.005)
                if running.done():
                    running.result()
                running.cancel()
                await labeller.finish(grace_secs=1.0)
                outcome.stats, outcome.asked, outcome.answers = labeller.stats(), server.asked, labeller.answers()
                return outcome

    return asyncio.run(body())


@pytest.fixture
def store(tmp_path):
    return LabelStore(str(tmp_path / "labels.sqlite"))


def flat(asked):
    return [message for messages in asked for message in messages]


def all_messages(count):
    return sorted(b"message %d" % i for i in range(count))


def test_each_message_once_and_newest_first(store):
    outcome = run(labels, store, 20, submissions=[[(b"message %d" % i,) for i in [*range(20), *range(20)]]])
    assert outcome.messages == all_messages(20)
    assert outcome.asked[0] == [b"message 19", b"message 18"]  # a small probe of whether lists are taken
    assert outcome.asked[1] == [b"message %d" % i for i in range(17, 9, -1)]
    assert sorted(flat(outcome.asked)) == all_messages(20)
    assert outcome.stats["labels_asked"] == 20 and outcome.stats["state"] == "ok"
    # stored answers are handed out, and never asked again
    again = run(labels, store, 20)
    assert again.messages == all_messages(20) and not again.asked


def test_another_runs_labels_are_not_asked(store, tmp_path):
    prompt = load_prompt(CONFIG)
    other = labelled((b"message 3",), 0, 0.0)

    def script(request):
        if request.number == 0:  # meanwhile, in another process
            LabelStore(store.path).put_many(CONFIG.llm_model, prompt.digest, [(other, "")])
        return labels(request)

    outcome = run(script, store)
    assert outcome.messages == all_messages(20) and other in outcome.annotations
    assert b"message 3" not in flat(outcome.asked)


def test_answers_handed_out_equal_the_stored_ones(store):
    """Another run asks about the same message at the same time, and its answer comes first."""
    other = labelled((b"message 0",), 0, 0.0)

    def script(request):
        LabelStore(store.path).put_many(CONFIG.llm_model, load_prompt(CONFIG).digest, [(other, "")])
        return labels(request)

    outcome = run(script, store, 1)
    assert outcome.annotations == [other] == store.all(CONFIG.llm_model, load_prompt(CONFIG).digest)


@pytest.mark.parametrize("when", ["at_the_start", "meanwhile"])
@pytest.mark.parametrize("kept", [b"riddle", b"2 1.0", b""])
def test_a_row_that_is_no_answer_ends_it(store, when, kept):
    """It is handed out to nobody, nor is it asked again: the file may be another program's."""
    row = Annotation((b"message 3",), kept)

    def script(request):
        if when == "meanwhile" and request.number == 0:
            LabelStore(store.path).put_many(CONFIG.llm_model, load_prompt(CONFIG).digest, [(row, "")])
        return labels(request)

    if when == "at_the_start":
        store.put_many(CONFIG.llm_model, load_prompt(CONFIG).digest, [(row, "")])
    with pytest.raises(UserError, match="label store: a row is no classification .*name another") as error:
        run(script, store)
    assert str(error.value).isprintable() and "message 3" in str(error.value)


def test_backlog_drops_the_oldest(store):
    config = dataclasses.replace(CONFIG, llm_max_backlog=10)
    outcome = run(labels, store, config=config, until=lambda stats: stats["labels_held"] == 10)
    assert sorted(item[0] for item in outcome.forgotten) == sorted(b"message %d" % i for i in range(10))
    assert outcome.stats["dropped"] == 10 and outcome.messages == sorted(b"message %d" % i for i in range(10, 20))


def test_items_that_no_prompt_or_store_takes_are_put_aside_unasked(store):
    too_long, with_zero = b"x" * (MAX_ITEM_BYTES + 1), b"message\x00 7"
    outcome = run(labels, store, 3, submissions=[[(too_long,), (b"message 1",), (with_zero,)]])
    assert outcome.messages == [b"message 1"] and flat(outcome.asked) == [b"message 1"]
    assert sorted(outcome.unknown) == sorted([too_long, with_zero]) and outcome.stats["put_aside"] == 2


def test_halving_finds_the_one_bad_prompt(store):
    def script(request):
        return refusal(400, "prompt too long") if b"message 5" in request.messages else labels(request)

    config = dataclasses.replace(CONFIG, llm_batch_size=100, llm_max_retries=2)
    outcome = run(script, store, 102, config)
    assert outcome.messages == sorted(set(all_messages(102)) - {b"message 5"})
    assert outcome.stats["put_aside"] == 1 and outcome.unknown == [b"message 5"]
    asked_alone = outcome.asked.count([b"message 5"])
    assert asked_alone == 1 + 2
    # 99 good ones come in halves, each once
    good = [message for messages in outcome.asked if b"message 5" not in messages for message in messages]
    assert len(good) == len(set(good)) == 101 and len(outcome.asked) < 25


@pytest.mark.parametrize(
    "fault, name",
    [
        (lambda request: texts("FOO"), "too_few_choices"),
        (lambda request: choices([]), "too_few_choices"),
        (lambda request: texts(*["FOO"] * 50), "too_many_choices"),
        (lambda request: refusal(500), "http_500"),
        (lambda request: refusal(503), "http_503"),
        (lambda request: refusal(429), "http_429"),
        (lambda request: refusal(429, **{"Retry-After": "0.1"}), "http_429"),
        (lambda request: web.Response(text="{"), "broken_json"),
        (lambda request: request.raw.transport.abort() or web.Response(), "disconnected"),
    ],
)
def test_labels_come_in_spite_of_faults(store, fault, name):
    """Every third request fails; no label is wrong, missing or asked for twice after it was given."""

    def script(request):
        if request.number % 3 == 1 and len(request.messages) != 1:
            return fault(request)
        return texts(*[f"<label>{'FOO' if int(m[8:]) % 2 else 'BAR'}</label>" for m in request.messages])

    outcome = run(script, store, 40)
    assert outcome.messages == all_messages(40)
    assert all(label_of(annotation) == int(annotation.item[0][8:]) % 2 for annotation in outcome.annotations)
    seen = outcome.stats.get(f"failures/{name}", 0) + outcome.stats.get("events/stale_connections", 0)
    assert seen >= 1 and outcome.stats["labels_asked"] == 40


def test_retry_after_is_kept(store):
    times = []

    def script(request):
        times.append(asyncio.get_running_loop().time())
        return refusal(429, **{"Retry-After": "0.5"}) if request.number == 0 else labels(request)

    run(script, store)
    assert times[1] - times[0] >= 0.5


def test_a_server_without_lists_gets_single_prompts(store):
    def script(request):
        return refusal(500, "lists") if isinstance(request.body["prompt"], list) else labels(request)

    outcome = run(script, store)
    assert outcome.messages == all_messages(20)
    assert [len(messages) for messages in outcome.asked] == [2] + [1] * 20
    assert outcome.stats["requests_failed"] == 1


def test_unreadable_is_retried_once_and_is_no_label(store):
    def script(request):
        return texts(*["who knows" if m in (b"message 3", b"message 4") else "FOO" for m in request.messages])

    outcome = run(script, store)
    assert outcome.messages == sorted(set(all_messages(20)) - {b"message 3", b"message 4"})
    assert flat(outcome.asked).count(b"message 3") == 2
    assert outcome.stats["answers_unreadable"] == 4 and outcome.stats["failures/unreadable"] == 4
    assert outcome.stats["labels_asked"] == 22 and outcome.stats["put_aside"] == 2


def test_argument_and_injection_are_not_labels(store):
    answers = {0: "this is not FOO", 1: "FOO? <label>BAR</label>", 2: "foo", 3: "", 4: "<label>FOO or BAR</label>"}

    def script(request):
        return texts(*[answers[int(m[8:])] for m in request.messages])

    outcome = run(script, store, 5)
    found = {annotation.item[0]: label_of(annotation) for annotation in outcome.annotations}
    assert found == {b"message %d" % i: label for i, label in enumerate((None, 0, 1, None, None))}
    assert outcome.stats["labels_held"] == 2
    assert outcome.stats["failures/empty_text"] == 2


def test_lists_that_take_too_long_become_shorter(store):
    async def script(request):
        await asyncio.sleep(0.05 * (len(request.messages) - 1))
        return labels(request)

    outcome = run(script, store, 24, dataclasses.replace(CONFIG, llm_max_in_flight=1))
    assert outcome.messages == all_messages(24)
    assert outcome.stats["failures/timed_out"] == 1
    assert [len(messages) for messages in outcome.asked] == [2, 8, 4, 4, 5, 6, 3]


def test_wrong_key_is_named_and_nothing_is_put_aside(store):
    outcome = run(lambda request: refusal(401), store, until=lambda stats: stats["requests_failed"] >= 8)
    assert outcome.stats["state"] == "wrong key" and "key" in outcome.stats["problem"]
    assert outcome.stats["backlog"] == 20 and outcome.stats["put_aside"] == 0
    assert max(map(len, outcome.asked)) <= 2  # probes are small


@pytest.mark.parametrize(
    "status, words", [(403, "flagged by moderation"), (400, f"model {CONFIG.llm_model}: filtered")]
)
def test_a_prompt_that_is_refused_as_a_key_or_a_model_is_put_aside(store, status, words):
    """While others are answered; also as the last."""

    def script(request):
        return refusal(status, words) if b"message 5" in request.messages else labels(request)

    outcome = run(script, store, config=dataclasses.replace(CONFIG, llm_max_retries=2, llm_max_in_flight=2))
    assert outcome.messages == sorted(set(all_messages(20)) - {b"message 5"}) and outcome.unknown == [b"message 5"]


def test_items_put_aside_in_an_outage_may_be_asked_again(store):
    """Whatever a server answers meanwhile."""

    def script(request):
        return refusal(400, "the engine is down") if request.number < 40 else labels(request)

    config = dataclasses.replace(CONFIG, llm_max_retries=1, llm_max_in_flight=1)
    outcome = run(script, store, config=config)
    assert len(outcome.unknown) > 3 and sorted(item[0] for item in outcome.readmitted) == outcome.unknown
    assert outcome.messages == sorted(set(all_messages(20)) - set(outcome.unknown))


def test_items_that_are_never_taken_are_not_asked_again(store):
    def script(request):
        return refusal(400, "prompt too long") if b"message 5" in request.messages else labels(request)

    outcome = run(script, store, config=dataclasses.replace(CONFIG, llm_max_retries=1))
    assert outcome.unknown == [b"message 5"] and outcome.readmitted == []


class FullDisk:
    commit_delay_secs = LabelStore.commit_delay_secs

    def __init__(self, store, failures):
        self._store, self._failures = store, failures
        self.get_many, self.all = store.get_many, store.all

    def put_many(self, *args):
        self._failures -= 1
        if self._failures >= 0:
            raise OSError("disk full")
        self._store.put_many(*args)


def test_full_disk_hands_nothing_out_and_asks_no_more(store, capsys):
    config = dataclasses.replace(CONFIG, llm_max_in_flight=1)
    stuck = run(labels, FullDisk(store, 10**6), config=config, wait_secs=0.5)
    assert not stuck.annotations and "label store" in stuck.stats["state"]
    assert len(flat(stuck.asked)) < 20
    assert capsys.readouterr().err == f"{len(flat(stuck.asked))} labels are lost: disk full\n"
    outcome = run(labels, FullDisk(store, 3), config=config)
    assert outcome.messages == all_messages(20) and outcome.stats["state"] == "ok"
    assert outcome.stats["failures/label_store"] == 3 and len(flat(outcome.asked)) == 20


def test_unexpected_exceptions_do_not_end_it(store, monkeypatch):
    real = Client.ask
    calls = iter(range(100))

    async def ask(self, *args):
        if next(calls) % 2:
            raise ZeroDivisionError
        return await real(self, *args)

    monkeypatch.setattr(Client, "ask", ask)
    outcome = run(labels, store)
    assert outcome.messages == all_messages(20) and outcome.stats["failures/unexpected_ZeroDivisionError"] >= 1


def test_the_newest_answers_are_kept_to_be_shown(store, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    def script(request):
        said = "I don't know." if request.messages == [b"message 0"] else "a" * 3000 + " sk-secret <label>FOO</label>"
        return texts(*[said] * len(request.messages))

    config = dataclasses.replace(CONFIG, llm_api="chat", llm_max_in_flight=1)
    outcome = run(script, store, 15, config)
    answers = outcome.answers
    assert len(answers) == labeller_module.NUM_ANSWERS
    assert answers[-1] == Answer((b"message 0",), "unreadable", "I don't know.")  # asked twice, as the last one
    readable = [answer for answer in answers if answer.said == "helpful"]
    assert len(readable) >= labeller_module.NUM_ANSWERS - 2
    for answer in readable:
        assert answer.text.endswith("*** <label>FOO</label>") and "[...]" in answer.text
        assert len(answer.text) < labeller_module.MAX_ANSWER_CHARS + 10


def test_tokens_are_counted_as_the_server_does_and_latency_is_that_of_late(store, monkeypatch):
    monkeypatch.setattr(labeller_module, "NUM_LATENCIES", 3)

    async def script(request):
        if request.number == 0:
            await asyncio.sleep(0.5)
        entries = [{"index": i, "text": "<label>FOO</label>"} for i in range(len(request.messages))]
        used = [{"prompt_tokens": 100, "completion_tokens": 7}, {"prompt_tokens": -1, "completion_tokens": "x"}, 3]
        usage = used[request.number] if request.number < 3 else {"prompt_tokens": True, "completion_tokens": 5}
        return web.json_response({"choices": entries, "usage": usage})

    config = dataclasses.replace(CONFIG, llm_max_in_flight=1, llm_batch_size=1, llm_timeout_secs=10.0)
    outcome = run(script, store, 6, config)
    assert outcome.stats["labels_held"] == 6
    assert (outcome.stats["prompt_tokens"], outcome.stats["completion_tokens"]) == (100, 7 + 3 * 5)
    assert 0 < outcome.stats["latency_secs_mean"] < 0.5


def test_no_more_is_asked_for_than_the_limit_of_labels(store):
    """Answers that are held already count, and unreadable ones don't."""
    store.put_many(CONFIG.llm_model, load_prompt(CONFIG).digest, [(labelled((b"held",), 1), "FOO")])
    limited = dataclasses.replace(CONFIG, llm_max_labels=7, llm_batch_size=4)

    def script(request):
        return texts(*["hm"] * len(request.messages)) if request.number == 0 else labels(request)

    enough = "no more labels, by --llm_max_labels"
    found = run(script, store, config=limited, until=lambda stats: stats["state"] == enough)
    assert found.stats["labels_held"] == 7 and found.stats["answers_unreadable"] > 0
    assert found.stats["state"] == enough and found.stats["backlog"] > 0
