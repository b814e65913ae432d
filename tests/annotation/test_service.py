"""The service's process against the real judge, over HTTP."""

import dataclasses
import http.server
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from oni_jax.annotation.judge import MAX_SHARED_PER_SEC, JudgeOptions, server_or_judge
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.service import NEWEST_OF_FULL, AnnotationService, merge_stats
from oni_jax.host.runtime import ChildError
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from oni_jax.types import TIE, Annotation, Query
from tests.annotation.test_judge import call
from tests.support.asking import (
    LANGUAGE,
    label_of,
    load_prompt,
    probability_of,
    queries,
    question,
    start_judge,
    start_service,
)
from tests.support.faults import free_port
from tests.support.judge_faults import Faults

WAIT_SECS = 30.0
ITEMS = [(b"You kill the newt! (%d)" % i,) for i in range(150)] + [(b"It's a wall. (%d)" % i,) for i in range(150)]


@pytest.fixture
def judge():
    judge = start_judge()
    yield judge
    judge.close()


@pytest.fixture
def store(tmp_path):
    return LabelStore(str(tmp_path / "labels.sqlite"))


@pytest.fixture
def start(store):
    services = []

    def start(address, **settings):
        config = AnnotationConfig(llm_server_addr=address, llm_batch_size=50, **settings)
        services.append(start_service(config, store))
        return services[-1]

    yield start
    for service in services:
        service.close(0.0)


def collect(service, count, wait_secs=WAIT_SECS):
    annotations, deadline = [], time.monotonic() + wait_secs
    while len(annotations) < count and time.monotonic() < deadline:
        annotations += service.poll()
        time.sleep(0.01)
    assert len(annotations) == count, service.stats()
    return annotations


def wait_for(service, condition, wait_secs=WAIT_SECS):
    """Returns what came meanwhile."""
    annotations, deadline = [], time.monotonic() + wait_secs
    while not condition(service.stats()):
        assert time.monotonic() < deadline, service.stats()
        annotations += service.poll()
        time.sleep(0.01)
    return annotations + service.poll()


@pytest.mark.parametrize("api, answer", [("completions", "reasoned"), ("chat", "label"), ("completions", "label")])
def test_labels_and_resume(judge, store, start, api, answer):
    service = start(judge.address, llm_api=api, llm_answer=answer)
    for _ in range(3):
        service.submit(queries(ITEMS))  # the learner may say it again
    annotations = collect(service, len(ITEMS))
    assert all(label_of(annotation) == annotation.item[0].startswith(b"You kill") for annotation in annotations)
    assert {annotation.item for annotation in annotations} == set(ITEMS)
    certainty = {round(probability_of(annotation), 2) for annotation in annotations}
    assert certainty == ({0.0, 1.0} if answer == "reasoned" else {0.05, 0.95})
    wait_for(service, lambda stats: service.answers() and stats["labels_held"] == len(ITEMS))
    service.close()
    assert service.stats()["labels_held"] == service.stats()["labels_asked"] == len(ITEMS)
    assert service.stats()["completion_tokens"] == len(ITEMS)
    for said in service.answers():
        assert said.item in ITEMS and (said.said == "helpful") == said.item[0].startswith(b"You kill")
        assert ("FOO" if said.said == "helpful" else "BAR") in said.text

    again = start(judge.address, llm_api=api, llm_answer=answer)
    again.submit(queries(ITEMS))
    assert set(collect(again, len(ITEMS))) == set(annotations)
    again.submit(queries([*ITEMS, (b"You kill it!",)]))
    collect(again, 1)
    again.close()
    stats = call(judge.address, "/stats")[1]
    assert stats["prompts"] == len(ITEMS) + 1 and stats["repeated"] == 0  # no label is asked twice
    assert again.stats()["labels_asked"] == 1


@pytest.mark.parametrize(
    "api, answer, version",
    [("completions", "reasoned", "reworded"), ("chat", "reasoned", "default")]
    + [("completions", "label", "default"), ("chat", "label", "reworded")],
)
def test_pairs(judge, store, api, answer, version):
    """Ranked in their order, kept apart from labels of messages, and not asked again by a later run."""
    config = AnnotationConfig(llm_server_addr=judge.address, llm_api=api, llm_answer=answer, prompt_version=version)
    pairs = [(ITEMS[i][0], ITEMS[-1 - i][0] + b"\xe9") for i in range(30)]
    pairs += [pair[::-1] for pair in pairs[:15]] + [(b"", b"It's a wall.")]
    expected = dict(zip(pairs, [0] * 30 + [1] * 15 + [2]))
    for num_asked in (len(pairs), 0):
        service = start_service(config, store, "ranking")
        service.submit(queries(pairs))
        annotations = collect(service, len(pairs))
        service.close()
        assert {annotation.item: label_of(annotation) for annotation in annotations} == expected
        assert {round(probability_of(annotation), 2) for annotation in annotations} == {
            1.0 if answer == "reasoned" else 0.95
        }
        assert service.stats()["labels_asked"] == num_asked
    assert store.count(config.llm_model, load_prompt(config).digest) == 0


def test_closing_waits_for_what_is_paid_for(store, start):
    judge = start_judge(JudgeOptions(latency_secs=0.5))
    service = start(judge.address, llm_api="completions")
    service.submit(queries(ITEMS[:2]))
    wait_for(service, lambda stats: stats["in_flight"] == 2)
    service.close()
    assert len(service.poll()) == 2
    judge.close()


def test_server_absent_then_present_then_killed_then_back(start):
    port = free_port()
    service = start(f"127.0.0.1:{port}", llm_api="completions")
    service.submit(queries(ITEMS[:100]))
    wait_for(service, lambda stats: stats["state"] == "waiting for server")
    assert service.stats()["backlog"] + service.stats()["in_flight"] == 100  # it may just be trying again
    judge = start_judge(JudgeOptions(port=port, latency_secs=0.05))
    collect(service, 100)
    judge._process.kill()
    judge.close()
    service.submit(queries(ITEMS[100:]))
    wait_for(service, lambda stats: stats["state"] == "waiting for server")
    judge = start_judge(JudgeOptions(port=port))
    collect(service, 200)
    wait_for(service, lambda stats: stats["state"] == "ok")
    service.close()
    assert service.stats()["failures/unreachable"] >= 2 and service.stats()["put_aside"] == 0
    judge.close()


def test_every_fault_of_the_judge(start, store, tmp_path):
    """Whatever a server does, labels come, and each is what the judge's log says."""
    log = tmp_path / "log.jsonl"
    judge = start_judge(JudgeOptions(trouble=Faults(0.3, seed=1), log_path=str(log)))
    service = start(judge.address, llm_api="completions", llm_max_retries=50, llm_timeout_secs=1.0)
    items = [(message + b"!",) for (message,) in ITEMS]
    service.submit(queries(items))
    annotations = collect(service, len(items))
    service.close()
    judge.close()
    labelled = {annotation.item[0]: label_of(annotation) for annotation in annotations if annotation.answer is not None}
    assert {annotation.item for annotation in annotations} == set(items)
    assert all(label == message.startswith(b"You kill") for message, label in labelled.items())
    # an unreadable answer is asked again once only
    assert service.stats()["labels_held"] == len(labelled) >= 0.8 * len(items)
    records = map(json.loads, log.read_text().splitlines())
    said = {record["message"].encode("latin-1"): record["label"] for record in records}
    config = AnnotationConfig()
    kept = store.all(config.llm_model, load_prompt(config).digest)
    assert len(kept) == len(labelled) and all(said[annotation.item[0]] == label_of(annotation) for annotation in kept)


def test_calls_do_not_wait_for_a_stopped_process(judge, start):
    service = start(judge.address, llm_max_backlog=2000)
    collect(service, 0)
    wait_for(service, lambda stats: stats["state"] == "ok")
    os.kill(service._process.pid, signal.SIGSTOP)
    slowest, annotations = 0.0, []
    for k in range(200):
        begin = time.perf_counter()
        service.submit(queries([(b"%d %d " % (k, i) + b"x" * 200,) for i in range(100)]))
        annotations += service.poll()
        slowest = max(slowest, time.perf_counter() - begin)
    assert slowest < 5.0  # not for as long as it is stopped
    stats = service.stats()
    assert [annotation.answer for annotation in annotations].count(None) == stats["dropped"]  # each is told
    assert float(stats["backlog"]) <= 2000
    assert float(stats["dropped"]) >= 200 * 100 / 2  # the rest waits in the pipe, whose size is the kernel's choice
    os.kill(service._process.pid, signal.SIGCONT)


def test_dropped_items_may_be_submitted_again(start):
    service = start(f"127.0.0.1:{free_port()}", llm_max_backlog=10)
    wait_for(service, lambda stats: stats["state"] != "starting")
    for first in (0, 10, 20):  # one at a time, so that it is the process that drops
        service.submit(queries(ITEMS[first : first + 10]))
    unknown = wait_for(service, lambda stats: stats["dropped"] == 20)
    assert len(set(unknown)) == 20 and {annotation[1:] for annotation in unknown} == {(None, 0)}
    assert set(ITEMS[:5]) <= {annotation.item for annotation in unknown}
    service.submit(queries(ITEMS[25:30]))  # still waiting
    service.submit(queries(ITEMS[:5]))
    wait_for(service, lambda stats: stats["dropped"] == 25)


class Recovering(http.server.BaseHTTPRequestHandler):
    """A server that answers FOO to all once `is_up`, and refuses whatever comes before."""

    is_up = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        answer = {"choices": [{"index": i, "text": "FOO"} for i in range(len(prompts))]}
        self.send_response(200 if self.is_up else 500)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode() if self.is_up else b"the engine is down")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_questions_put_aside_in_an_outage_may_be_submitted_again(start, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recovering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        service = start(f"127.0.0.1:{server.server_address[1]}", llm_api="completions", llm_max_retries=0)
        service.submit(queries(ITEMS[:3]))
        put_aside = collect(service, 3)
        assert {annotation.answer for annotation in put_aside} == {None}
        service.submit(queries(ITEMS[:3]))  # known to get no answer
        monkeypatch.setattr(Recovering, "is_up", True)
        service.submit(queries(ITEMS[3:4]))
        assert collect(service, 1)[0].answer
        service.submit(queries(ITEMS[:3]))
        assert all(annotation.answer for annotation in collect(service, 3))
        server.shutdown()


def test_a_judge_beside_environments_on_the_cpu_is_asked_in_few_lists(store):
    with server_or_judge(AnnotationConfig(llm_chat_template="none"), LANGUAGE, shares_cpu=True) as config:
        assert (config.llm_api, config.llm_max_per_sec) == ("completions", MAX_SHARED_PER_SEC)
        service = start_service(config, store)
        service.submit(queries(ITEMS))
        wait_for(service, lambda stats: stats["labels_asked"] == len(ITEMS))
        stats = service.stats()
        service.close(0.0)
    assert int(stats["requests"]) < len(ITEMS) / 2 and stats["answers_unreadable"] == 0
    given = AnnotationConfig(llm_max_per_sec=7.0)
    with server_or_judge(given, LANGUAGE, shares_cpu=True) as config:
        assert config.llm_max_per_sec == 7.0
    with server_or_judge(given, LANGUAGE) as config:
        assert config.llm_api == given.llm_api


def test_a_full_backlog_has_room_for_few(start):
    service = start(f"127.0.0.1:{free_port()}", llm_max_backlog=100)
    wait_for(service, lambda stats: stats["state"] != "starting")
    assert service.room() == 100
    service.submit(queries([(b"%d" % i,) for i in range(60)]))
    wait_for(service, lambda stats: stats["backlog"] == 60)
    assert service.room() == 40
    service.submit(queries([(b"%d" % i,) for i in range(60, 100)]))
    wait_for(service, lambda stats: stats["backlog"] == 100)
    assert service.room() == NEWEST_OF_FULL


def test_death_of_the_process_is_raised(judge, start):
    service = start(judge.address)
    service._process.kill()
    with pytest.raises(ChildError, match="-9"):
        wait_for(service, lambda stats: False)


class BrokenStore:
    commit_delay_secs = 0.0

    def all(self, model, digest):
        raise ZeroDivisionError("a mistake")

    def get_many(self, model, digest, items):
        return []

    def put_many(self, model, digest, answered):
        pass


def test_exception_in_the_process_is_raised_with_its_traceback(judge):
    service = start_service(AnnotationConfig(llm_server_addr=judge.address), BrokenStore())
    with pytest.raises(ChildError, match="ZeroDivisionError: a mistake"):
        wait_for(service, lambda stats: False)
    service.close()


@pytest.mark.parametrize(
    "settings", [{"llm_server_addr": "ftp://host"}, {"prompt_file": "/nowhere"}, {"llm_chat_template": "/nowhere"}]
)
def test_bad_settings_start_nothing(store, settings):
    with pytest.raises(UserError):
        start_service(dataclasses.replace(AnnotationConfig(llm_server_addr="host"), **settings), store)


# ---- several questions


KILLS = [(b"You kill the newt! (%d)" % i,) for i in range(60)]
COINS = [(b"$ - %d gold pieces." % i,) for i in range(60)]
PAIRS = [(kill[0], coin[0]) for kill, coin in zip(KILLS, COINS)][:40]


@pytest.fixture
def start_all(store):
    services = []

    def start_all(*questions):
        services.append(AnnotationService([question(*asked) for asked in questions], store))
        return services[-1]

    yield start_all
    for service in services:
        service.close(0.0)


def test_each_question_has_separate_answers(judge, store, start_all):
    """Two questions of other prompts and kinds share a store. An item of both is asked twice."""
    fight, dig = (AnnotationConfig(llm_server_addr=judge.address, goal_key=goal) for goal in ("combat", "gold"))
    chat = dataclasses.replace(dig, llm_answer="label")  # another style of answer is another prompt
    expected = {Query(item, 0): True for item in KILLS} | {Query(item, 0): False for item in COINS}
    expected |= {Query(item, 1): False for item in KILLS} | {Query(item, 1): True for item in COINS}
    expected |= {Query(pair, 2): 1 for pair in PAIRS} | {Query(pair[::-1], 2): 0 for pair in PAIRS}
    asked = sorted(expected, key=hash)
    service = start_all((fight,), (dig,), (chat, "ranking"))
    for _ in range(3):  # the learner may say it again
        service.submit(asked)
    annotations = collect(service, len(expected))
    assert {Query(annotation.item, annotation.question): label_of(annotation) for annotation in annotations} == expected
    assert {round(probability_of(annotation), 2) for annotation in annotations if annotation.question == 2} == {0.95}
    wait_for(service, lambda stats: stats["labels_held"] == len(expected) and len(service.answers()) == 30)
    service.close()
    stats = service.stats()
    assert stats["labels_asked"] == stats["labels_held"] == stats["completion_tokens"] == len(expected)
    assert stats["backlog"] == stats["in_flight"] == 0 and (stats["state"], stats["problem"]) == ("ok", "")
    assert {len(answer.item) for answer in service.answers()[:3]} == {1, 2}  # questions take turns
    for answer in service.answers():
        words = ("not helpful", "helpful") if len(answer.item) == 1 else ("first", "second")
        assert answer.said in {words[label] for (item, _), label in expected.items() if item == answer.item}
    said = call(judge.address, "/stats")[1]
    assert said["prompts"] == len(expected) and said["repeated"] == 0
    prompts = [load_prompt(fight), load_prompt(dig), load_prompt(chat, "ranking")]
    assert [store.count(fight.llm_model, prompt.digest) for prompt in prompts] == [120, 120, 80]
    assert service.labels_of == ", ".join(f"{fight.llm_model} {prompt.digest}" for prompt in prompts)


def test_stored_answers_are_handed_out_by_question(judge, store, start_all):
    """Whatever was asked in between, and whichever number a question has now."""
    fight, dig = (AnnotationConfig(llm_server_addr=judge.address, goal_key=goal) for goal in ("combat", "gold"))
    first = start_all((fight,), (dig,))
    first.submit([*queries(KILLS, 0), *queries(COINS, 1)])
    collect(first, 120)
    first.close()
    again = start_all((dig, "ranking"), (dig,), (fight,))
    held = {(annotation.item, annotation.question, label_of(annotation)) for annotation in collect(again, 120)}
    assert held == {(item, 1, 1) for item in COINS} | {(item, 2, 1) for item in KILLS}
    again.submit([*queries(COINS, 1), *queries(KILLS, 2), *queries(KILLS[:5], 1), *queries(PAIRS[:5], 0)])
    new = {(annotation.item, annotation.question, label_of(annotation)) for annotation in collect(again, 10)}
    assert new == {(item, 1, 0) for item in KILLS[:5]} | {(pair, 0, 1) for pair in PAIRS[:5]}
    again.close()
    assert again.poll() == [] and again.stats()["labels_asked"] == 10 and again.stats()["labels_held"] == 130
    said = call(judge.address, "/stats")[1]
    assert said["prompts"] == 130 and said["repeated"] == 0


def test_another_questions_server_may_be_away(judge, start_all):
    port = free_port()
    here = AnnotationConfig(llm_server_addr=judge.address)
    away = AnnotationConfig(llm_server_addr=f"127.0.0.1:{port}", llm_model="other")
    service = start_all((here,), (away, "ranking"))
    service.submit([*queries(PAIRS, 1), *queries(KILLS, 0)])
    assert {annotation.question for annotation in collect(service, len(KILLS))} == {0}
    held = {"state": "waiting for server", "labels_held": len(KILLS)}  # counts come a while after the labels
    wait_for(service, lambda stats: held.items() <= stats.items())
    stats = service.stats()
    assert stats["backlog"] + stats["in_flight"] == len(PAIRS)
    assert "unreachable" in str(stats["problem"]) and stats["failures/unreachable"] == stats["requests_failed"] > 0
    back = start_judge(JudgeOptions(port=port))
    pairs = collect(service, len(PAIRS))
    assert {(annotation.item, annotation.question, label_of(annotation)) for annotation in pairs} == {
        (pair, 1, TIE) for pair in PAIRS
    }
    wait_for(service, lambda stats: stats["state"] == "ok")
    back.close()


def test_a_dropped_query_is_told_with_its_question(start_all):
    """By the process, which drops from the backlog of one question, and by what waits here."""
    config = AnnotationConfig(llm_server_addr=f"127.0.0.1:{free_port()}", llm_max_backlog=10)
    service = start_all((config,), (dataclasses.replace(config, goal_key="gold", llm_max_backlog=5),))
    wait_for(service, lambda stats: stats["state"] != "starting")
    service.submit(queries(KILLS[:10], 0))
    service.submit(queries(KILLS[:10], 1))
    told = wait_for(service, lambda stats: stats["dropped"] == 5)
    assert len(told) == 5 and set(told) <= {Annotation(item, None, 1) for item in KILLS[:10]}
    again = [Query(annotation.item, annotation.question) for annotation in told]
    service.submit([*again, *queries(KILLS[:10], 0)])  # the latter still wait
    told = wait_for(service, lambda stats: stats["dropped"] == 10)
    assert len(told) == 5 and {annotation.question for annotation in told} == {1}
    assert service.stats()["backlog"] + service.stats()["in_flight"] == 15


def test_a_mistake_in_any_question_ends_it(judge, start_all):
    config = AnnotationConfig(llm_server_addr=judge.address)
    with pytest.raises(UserError, match="chat template"):
        start_all((config,), (dataclasses.replace(config, llm_chat_template="/nowhere"),))


def test_a_row_of_the_store_that_is_no_answer_ends_it(judge, store, start_all):
    config = AnnotationConfig(llm_server_addr=judge.address)
    store.put_many(config.llm_model, load_prompt(config, "ranking").digest, [(Annotation(PAIRS[0], b"riddle"), "")])
    fine = start_all((config,))
    fine.submit(queries(KILLS[:1]))
    collect(fine, 1)  # foreign answers are not looked at
    service = start_all((config,), (config, "ranking"))
    with pytest.raises(ChildError, match="^annotation: label store: a row is no ranking.*$"):
        wait_for(service, lambda stats: False)


def test_stats_of_several_questions():
    well = {"state": "ok", "problem": "", "latency_secs_mean": 1.0, "requests": 3, "failures/http_500": 2}
    ill = {"state": "retrying", "problem": "http_500: no", "latency_secs_mean": 2.0, "requests": 4, "events/x": 1}
    worse = {**ill, "state": "waiting for server", "problem": "", "latency_secs_mean": 6.0}
    assert merge_stats([well]) == well
    merged = merge_stats([well, ill, worse])
    assert (
        merged
        == merge_stats([ill, well, worse])
        == {
            "state": "retrying",
            "problem": "http_500: no",
            "latency_secs_mean": 3.0,
            "requests": 11,
            "failures/http_500": 2,
            "events/x": 2,
        }
    )


PARENT = textwrap.dedent("""
    import sys, time
    from oni_jax.config import AnnotationConfig
    from oni_jax.annotation.label_store import LabelStore
    from tests.support.asking import queries, start_judge, start_service

    if __name__ == "__main__":
        judge = start_judge()
        service = start_service(AnnotationConfig(llm_server_addr=judge.address), LabelStore(sys.argv[1]))
        service.submit(queries([(b"You kill the newt!",)]))
        while not service.poll():
            time.sleep(0.01)
        print(judge._process.pid, service._process.pid, flush=True)
        if sys.argv[2] == "wait":
            time.sleep(60)
""")


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_processes_end_with_their_parent(tmp_path, end):
    """Neither after SIGKILL, nor when the parent ends without closing anything. Labels stay. No JAX in the children."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    store = tmp_path / "labels.sqlite"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, str(script), str(store), "wait" if end == "kill" else "end"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    if end == "kill":
        maps = [open(f"/proc/{pid}/maps").read() for pid in pids]
        assert not any("jaxlib" in text for text in maps)
        parent.kill()
    assert parent.wait(timeout=10) == (-9 if end == "kill" else 0)
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in pids)
    assert set(os.listdir("/dev/shm")) <= before
    digest = load_prompt(AnnotationConfig()).digest
    assert LabelStore(str(store)).count(AnnotationConfig().llm_model, digest) == 1


def alive(pid):
    """True if a process runs; an orphan that nobody reaps does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
