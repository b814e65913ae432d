"""Each fault of a server that suggests goals costs goals for a while, or for one state, and never a wrong one."""

import dataclasses

import pytest

from oni_jax.annotation import pacing
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.suggestions import parsed
from oni_jax.envs.registry import find_environment
from oni_jax.rewards.ellm.ellm import Matcher, SuggestedGoalReward
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from tests.annotation.fake_server import texts
from tests.annotation.test_faults import FAULTS, FAULTY_REQUESTS, NUM_MESSAGES, truth
from tests.annotation.test_labeller import CONFIG, all_messages, quick_pauses, run, store

__all__ = ["quick_pauses", "store"]  # fixtures
KIND = (find_environment(EnvConfig(root_env="CrafterTextEnv-v1")).language, "suggestions")
GOALS = ("chop tree", "eat cow", "sleep")
PROSE = "I am sorry, but I can't suggest anything to do in a state of which I am told so very little by you."
NO_LISTS = (
    ("unreadable", lambda request: texts(*[PROSE] * len(request.messages))),
    ("unreadable", lambda request: texts(*["\u0000\ufffd" * 500] * len(request.messages))),
    ("unreadable", lambda request: texts(*["[1, 2, {}]"] * len(request.messages))),
)
# One of each name, and answers that are no lists
SCRIPTS = [*{name: (name, fault) for name, fault in FAULTS if name != "unreadable"}.values(), *NO_LISTS]


def suggestions(request):
    return texts(*[f"- {GOALS[truth(m)]}\n- Sleep." for m in request.messages])


@pytest.mark.parametrize("name, fault", SCRIPTS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(SCRIPTS)])
def test_a_fault_costs_goals_alone(store, monkeypatch, name, fault):
    monkeypatch.setattr(pacing, "MAX_RETRY_AFTER_SECS", 0.05)

    def script(request):
        is_faulty = request.number in FAULTY_REQUESTS and (len(request.messages) > 1 or name != "bad_indices")
        return fault(request) if is_faulty else suggestions(request)

    late = name in ("timed_out", "too_slow")
    config = dataclasses.replace(CONFIG, llm_max_in_flight=1, llm_max_retries=4, llm_timeout_secs=0.3 if late else 9.0)
    outcome = run(script, store, NUM_MESSAGES, config, kind=KIND)
    assert sorted(outcome.messages + outcome.unknown) == all_messages(NUM_MESSAGES)
    assert name in {key.partition("/")[2] for key in outcome.stats if key.startswith("failures/")}
    assert outcome.stats["state"] == "ok" and (name in ("empty_text", "unreadable") or not outcome.unknown)
    matcher = Matcher(GOALS, GoalConfig())
    for (message,), answer, _ in outcome.annotations:
        worths = [0.0, 0.0, 0.0, 0.0]
        if answer is not None:
            assert parsed(answer, strict=False) == [GOALS[truth(message)], "sleep"]
            worths[truth(message)] = worths[2] = 1.0
        assert matcher.worths(answer or b"").tolist() == worths
    # A reward takes all of them in, those without an answer too
    reward = SuggestedGoalReward(load_prompt(CONFIG, *KIND), matcher)
    reward.ingest(outcome.annotations)
    assert reward.metrics()["captions_answered"] == len(outcome.messages)


def test_list_that_the_strict_parser_cant_read_is_asked_once_more(store):
    """So is what was kept of one that can be read; both parsers share the store."""

    def script(request):
        return texts(*["1. eat cow" if truth(m) == 0 else f"- {GOALS[truth(m)]}" for m in request.messages])

    strict = (KIND[0], "suggestions_strict")
    outcome = run(script, store, NUM_MESSAGES, kind=strict)
    given_up = [message for message in all_messages(NUM_MESSAGES) if truth(message) == 0]
    assert given_up and sorted(outcome.unknown) == given_up
    assert outcome.stats["answers_unreadable"] == 2 * len(given_up)
    assert all(parsed(answer, strict=True) for _, answer, _ in outcome.annotations if answer is not None)
    assert load_prompt(CONFIG, *strict).digest == load_prompt(CONFIG, *KIND).digest
