"""One query about all goals of an agent (`--llm_answer goals`): its answer is read line by line, and asked for once."""

import asyncio
import dataclasses
import json
import time
from contextlib import ExitStack

import pytest

from launch import train
from oni_jax.annotation.client import Client
from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_joint_prompt
from oni_jax.annotation.queries.by_goal import ByGoal
from oni_jax.annotation.queries.choices import decode_label
from oni_jax.annotation.queries.classification import Classification
from oni_jax.annotation.request_fields import first_form
from oni_jax.annotation.service import AnnotationService
from oni_jax.answers.answerer import open_questions
from oni_jax.envs.registry import languages
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from tests.annotation.fake_server import choices, fake_server
from tests.support.asking import LANGUAGE, judge_prompt, load_prompt, queries, start_service
from tests.support.llm_server import Request, llm_server, scripted_server

GOALS = ("combat", "gold", "stairs")
KIND = ByGoal(Classification(), GOALS)
ITEMS = [(b"You kill the newt! (%d)" % i,) for i in range(6)]
CONFIG = AnnotationConfig(llm_answer="goals", llm_max_retries=0)


def labels_in(text: str, read=KIND.read) -> dict[str, int]:
    kept = read(text, None, "")
    labels = KIND.split(kept) if kept is not None else [None] * len(GOALS)
    return {goal: decode_label(label).label for goal, label in zip(GOALS, labels) if label is not None}


ALL = {"combat": 1, "gold": 0, "stairs": 1}


@pytest.mark.parametrize(
    "text",
    [
        "combat: FOO\ngold: BAR\nstairs: FOO",
        "stairs: FOO\ngold: BAR\ncombat: FOO",
        "1. combat: FOO\n2. gold: BAR\n3. stairs: FOO",
        "1) **Stairs** - FOO\n2) **Combat** - FOO\n3) **Gold** - BAR",
        "combat: FOO, gold: BAR; stairs: FOO",
        "Here you are.\n\n- combat → FOO (it is a fight)\n- gold → BAR\n- stairs → FOO\nShall I go on?",
        "combat:\nFOO\n\ngold:\nBAR\n\nstairs:\nFOO",
        "### combat\nFOO\n### gold\nBAR\n### stairs\nFOO",
        "combat (to fight): FOO\nFor gold: BAR, not FOO\nunder the goal stairs: FOO",
        "combat: a fight, which helps: FOO\ngold: nothing of it, so BAR\nstairs: they are here. FOO",
        "combat: FOO\ngold: BAR\nstairs: FOO\n\ncombat: FOO\ngold: BAR\nstairs: FOO",
        "<analysis>combat: BAR would be wrong.</analysis>\ncombat: FOO\ngold: BAR\nstairs: FOO",
        "combat: the message is of a fight\ngold: none is in it\nstairs: none\n\ncombat: FOO\ngold: BAR\nstairs: FOO",
        "| goal | label |\n|---|---|\n| combat | FOO |\n| gold | BAR |\n| stairs | FOO |",
        "<combat>FOO</combat>\n<gold>BAR</gold>\n<stairs>FOO</stairs>",
        "combat: <label>FOO</label>\ngold: <label>BAR</label>\nstairs: <label>FOO</label>",
        '{"combat": "FOO", "gold": "BAR", "stairs": "FOO"}',
        '```json\n{\n  "labels": {\n    "stairs": "FOO",\n    "combat": "FOO",\n    "gold": "BAR"\n  }\n}\n```',
        '[{"goal": "combat", "label": "FOO"}, {"goal": "gold", "label": "BAR"}, {"goal": "stairs", "label": "FOO"}]',
        '{"combat": {"label": "FOO"}, "gold": {\n"label": "BAR"}, "stairs": {"label": "FOO"}}',
    ],
)
def test_answer_is_read_in_any_form_that_names_each_goal(text):
    assert labels_in(text) == ALL


@pytest.mark.parametrize(
    "text, found",
    [
        ("combat: FOO\nstairs: FOO", {"combat": 1, "stairs": 1}),
        ("combat: FOO\ngold: FOO or BAR\nstairs: BAR", {"combat": 1, "stairs": 0}),
        ("combat: FOO\ngold: not FOO\nstairs: BAR", {"combat": 1, "stairs": 0}),
        ("combat: FOO\ncombat: BAR\ngold: FOO", {"gold": 1}),
        ("golden: FOO\ncombat: FOOD\nstairs: foo", {}),
        ('The message says "combat: FOO gold: FOO".\nstairs: BAR', {"stairs": 0}),
        ("FOO", {}),
        ("FOO\nBAR\nFOO", {}),
        ("", {}),
        ("combat: " * 3000 + "\0\ud800 FOO" + "(" * 3000, {"combat": 1}),
        ("{" * 5000, {}),
    ],
)
def test_goal_without_one_label_has_no_answer(text, found):
    assert labels_in(text) == found


def test_half_an_answer_is_read_up_to_where_it_is_whole():
    assert labels_in("combat: FOO\ngold: BA", KIND.read_cut_off) == {"combat": 1}
    assert labels_in("combat: FOO\ngold: BAR", KIND.read_cut_off) == {"combat": 1, "gold": 0}
    assert labels_in("combat: FOO\ngold: FOO is what one", KIND.read_cut_off) == {"combat": 1}


class Service:
    """A service that asks about all goals, with what it said so far."""

    def __init__(self, address: str, store: LabelStore, stack: ExitStack, goals=GOALS, **settings):
        config = dataclasses.replace(CONFIG, llm_server_addr=address, **settings)
        asked = [(dataclasses.replace(config, goal_key=goal), "classification") for goal in goals]
        self.goals, questions = goals, open_questions(asked, LANGUAGE, stack)
        self.service = AnnotationService(questions, store)
        stack.callback(self.service.close, 0.0)

    def annotations(self, count: int, items=ITEMS) -> dict:
        """Labels by item and goal, None where there is none, of so many that come."""
        for question in range(len(self.goals)):
            self.service.submit(queries(items, question))
        found, deadline = {}, time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for item, answer, question in self.service.poll():
                found[item[0], self.goals[question]] = None if answer is None else decode_label(answer).label
            time.sleep(0.01)
        assert len(found) == count, self.service.stats()
        return found

    def has(self, **expected: int) -> bool:
        """Returns whether the statistics, which come later than labels, become these."""
        deadline = time.monotonic() + 30
        while {name: self.service.stats()[name] for name in expected} != expected:
            if time.monotonic() > deadline:
                return False
            self.service.poll()
            time.sleep(0.01)
        return True


def lines(prompt: str, goals=GOALS) -> str:
    """An answer, which is different for each goal."""
    return "\n".join(f"{goal}: {'FOO' if goal == 'combat' else 'BAR'}" for goal in goals)


EXPECTED = {(item[0], goal): int(goal == "combat") for item in ITEMS for goal in GOALS}


@pytest.fixture
def store(tmp_path):
    return LabelStore(str(tmp_path / "labels.sqlite"))


def stored(store: LabelStore, goal: str, answer: str = "reasoned") -> dict:
    prompt = load_prompt(AnnotationConfig(goal_key=goal, llm_answer=answer))
    return {item[0]: decode_label(label or b"").label for item, label, _ in store.all(CONFIG.llm_model, prompt.digest)}


def test_one_query_labels_a_caption_under_all_goals(store):
    with llm_server(lines) as server, ExitStack() as stack:
        service = Service(server.address, store, stack)
        assert service.annotations(len(EXPECTED)) == EXPECTED
        assert len(server.asked) == len(ITEMS)
        assert service.has(labels_held=len(EXPECTED), labels_asked=len(ITEMS))
        service.service.close()
        again = Service(server.address, store, stack)  # as a run that is resumed
        assert again.annotations(len(EXPECTED)) == EXPECTED and len(server.asked) == len(ITEMS)


def test_answers_of_all_goals_and_of_one_are_interchangeable(store):
    """A goal that is answered keeps its answer; the others are asked about in one query, with it."""

    def answer(prompt: str) -> str:
        return lines(prompt) if "combat: FOO or BAR" in prompt else "<label>FOO</label>"

    with llm_server(answer) as server, ExitStack() as stack:
        alone = dataclasses.replace(CONFIG, llm_answer="reasoned", goal_key="gold", llm_server_addr=server.address)
        service = start_service(alone, store)
        stack.callback(service.close, 0.0)
        service.submit(queries(ITEMS[:2]))
        deadline = time.monotonic() + 30
        while len(stored(store, "gold")) < 2 and time.monotonic() < deadline:
            service.poll()
            time.sleep(0.01)
        together = Service(server.address, store, stack)
        gold_first = {(item[0], "gold"): 1 for item in ITEMS[:2]}
        assert together.annotations(len(EXPECTED)) == EXPECTED | gold_first
        assert len(server.asked) == 2 + len(ITEMS)
        for goal in GOALS:
            assert stored(store, goal) == {
                item: label for (item, key), label in (EXPECTED | gold_first).items() if key == goal
            }
            one = start_service(dataclasses.replace(alone, goal_key=goal), store)
            stack.callback(one.close, 0.0)
            one.submit(queries(ITEMS))
            while one.stats()["labels_held"] != len(ITEMS) and time.monotonic() < deadline:
                time.sleep(0.01)
                one.poll()
        assert len(server.asked) == 2 + len(ITEMS)


def test_goal_that_an_answer_lacks_is_asked_about_once_more(store):
    num_asked = {}

    def answer(request: Request) -> tuple[int, dict]:
        turns = [turn["content"] for turn in request.body["messages"]]
        item = judge_prompt(turns[1]).item[0]
        num_asked[item] = num_asked.get(item, 0) + 1
        if len(turns) > 2:
            assert turns[2] == "combat: FOO" and "stairs: FOO or BAR" in turns[3]
        last = "gold: BAR" if item.endswith(b"(0)") else "Sorry."
        text = "combat: FOO" if len(turns) == 2 else f"combat: BAR\n{last}"
        return 200, {"choices": [{"index": 0, "message": {"content": text}}]}

    with scripted_server(answer) as address, ExitStack() as stack:
        service = Service(address, store, stack)
        found = service.annotations(2 * len(GOALS), ITEMS[:2])
        assert {key: label for key, label in found.items() if label is not None} == {
            (ITEMS[0][0], "combat"): 1,  # the first answer's
            (ITEMS[0][0], "gold"): 0,
            (ITEMS[1][0], "combat"): 1,
        }
        assert set(num_asked.values()) == {2}
        assert stored(store, "combat") == {ITEMS[0][0]: 1, ITEMS[1][0]: 1} and not stored(store, "stairs")
        for question in range(len(GOALS)):
            service.service.submit(queries(ITEMS[:2], question))
        time.sleep(0.3)
        assert set(num_asked.values()) == {2} and service.has(put_aside=2)
        service.service.close()
        again = Service(address, store, stack)  # the run is resumed: what has no answer is asked about
        resumed = again.annotations(2 * len(GOALS), ITEMS[:2])
        assert resumed == found and set(num_asked.values()) == {4}


def test_judge_answers_under_all_goals_at_once(store):
    with ExitStack() as stack:
        service = Service("", store, stack, answers="judge")
        found = service.annotations(2 * len(GOALS), [(b"You kill the newt!",), (b"$ - 3 gold pieces.",)])
    assert {key for key, label in found.items() if label} == {
        (b"You kill the newt!", "combat"),
        (b"$ - 3 gold pieces.", "gold"),
    }


@pytest.mark.parametrize("constraint", ["none", "vllm", "sglang", "llamacpp", "json_schema"])
def test_constraint_is_of_all_lines(constraint):
    said = json.dumps(dict(combat="FOO", gold="BAR", stairs="FOO")) if constraint == "json_schema" else lines("")
    config = dataclasses.replace(CONFIG, llm_constraint=constraint, goal_key=",".join(GOALS))
    prompt = load_joint_prompt(config, GOALS, LANGUAGE)
    content = choices([{"index": 0, "message": {"content": said}}])

    async def body():
        async with fake_server(lambda request: content) as server:
            full = dataclasses.replace(config, llm_server_addr=server.address)
            async with Client(full, prompt) as client:
                return await client.ask(ITEMS[:1]), server.requests

    (reply,), (request,) = asyncio.run(body())
    sent, asked = json.dumps(request.body), json.dumps(prompt.turns(ITEMS[0]))
    assert reply.answer is not None and not reply.failure and labels_in(reply.text) == labels_in(said) != {}
    for goal in GOALS:
        assert f"{goal}: FOO or BAR" in sent and (constraint == "none" or sent.count(goal) > asked.count(goal))
    assert request.body["max_tokens"] == config.llm_max_tokens and "logprobs" not in request.body


@pytest.mark.parametrize("constraint", ["vllm", "sglang", "llamacpp", "json_schema"])
def test_server_that_refuses_a_constraint_is_asked_without(constraint):
    form = first_form(dataclasses.replace(CONFIG, llm_constraint=constraint), ("BAR", "FOO"), GOALS)
    (field,) = {*form.fields} & {"structured_outputs", "regex", "grammar", "response_format"}
    without = form.without_refused(400, f"unknown field {field}", may_guess=True)
    assert without is not None and field not in without.fields


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"llm_reward_type": "online_motif"}, "--llm_reward_type online_motif asks for ranking; use --llm_answer"),
        ({"llm_reward_type": "ellm", "root_env": "CrafterTextEnv-v1"}, "--llm_reward_type ellm asks for suggestions"),
        ({"goal_key": "gold", "goal_conditioned": False}, "asks about several goals in one query; name them"),
        ({"llm_reward_value": "probability"}, "has no probabilities for --llm_reward_value probability; use"),
    ],
)
def test_query_about_all_goals_is_refused_where_it_has_no_meaning(changes, words):
    values = {"llm_answer": "goals", "goal_key": "combat,gold", "goal_conditioned": True, "llm_reward_coeff": 0.1}
    values |= {"llm_reward_type": "online_cls", "root_env": "NetHackScore-v1"}
    with pytest.raises(UserError, match=words):
        with_chosen_env(with_values(Config(), {**values, **changes}))


def test_run_that_is_resumed_asks_about_no_caption_again(tmp_path):
    def answer(prompt: str) -> str:
        assert "gold: FOO or BAR" in prompt
        return "gold: FOO\ncombat: BAR"

    flags = (
        "--root_env Catch-v0 --llm_reward_type online_cls --llm_reward_coeff 0.3 --num_workers 1 --actor_pool serial "
        "--num_envs_per_worker 4 --encoder_custom mlp_encoder --hidden_size 8 --batch_size 20 --rollout 5 "
        "--recurrence 5 --save_every_sec 0 --device cpu --goal_key combat,gold "
        "--goal_conditioned --llm_answer goals --experiment run"
    ).split()
    (tmp_path / "prompt.json").write_text(json.dumps(PROMPT))
    flags += ["--prompt_file", str(tmp_path / "prompt.json"), "--train_dir", str(tmp_path), "--log_every_sec", "0.01"]
    with llm_server(answer) as server:
        for num_steps in (200, 400):
            asked = [*flags, "--llm_server_addr", server.address, "--train_for_env_steps", str(num_steps)]
            assert train.main(asked) == 0
        assert 0 < len(server.asked) == len({*server.asked}) <= 3
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = {goal: rows[-1][f"episode/intrinsic_return/online_cls_{goal}"] for goal in ("combat", "gold")}
    assert last["gold"] > 0 == last["combat"]


PROMPT = {
    "kind": "classification",
    "system": "You judge.",
    "user": "{goal}\n{answer}\n<message>\n{message}\n</message>",
    "goals": {"combat": "Fight.", "gold": "Get gold."},
    "answers": {"reasoned": "<label>FOO or BAR</label>", "label": "FOO or BAR"},
}


def test_environments_prompts_ask_about_all_goals_that_they_have():
    for name, goals in (
        ("nethack", GOALS),
        ("babyai", ("keys", "balls", "boxes")),
        ("crafter", ("gathering", "feeding")),
    ):
        prompt = load_joint_prompt(AnnotationConfig(), goals, languages()[name])
        text = prompt.user((b"caption",))
        assert all(text.count(f"{goal}: ") == 2 for goal in goals) and "<label>" not in text
