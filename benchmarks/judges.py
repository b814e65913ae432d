"""Agreement of a small language model with the rule-based judge, and the speed of its answers, without a GPU.

    python -m benchmarks.judges --json benchmarks/judges.json

The model is that of `benchmarks.llama_cpp`, which is started here; both are asked by the client of a training, about
the same messages of real games. A model of this size judges nothing: what is measured is whether answers can be
read, what they cost, and how far chance alone makes two judges agree.
"""

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

from benchmarks.harness import JSON, run_app, sized, write_report
from benchmarks.llama_cpp import MODEL_NAME, LlamaServer
from benchmarks.messages import collect
from oni_jax.annotation.asker import Asked
from oni_jax.annotation.judge import JUDGE_MODEL, EmbeddedJudge
from oni_jax.annotation.prompts import Prompt, load_prompt
from oni_jax.annotation.service import Question
from oni_jax.envs.nethack import ENVIRONMENT
from oni_jax.evaluation.asking.answers import ask_all
from oni_jax.evaluation.asking.summary import compare, tokens_of, total_tokens
from oni_jax.evaluation.asking.texts import make_items
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.types import Item

KINDS = ("classification", "ranking")


class Form(NamedTuple):
    """A form of answers, and how many messages are asked about in it."""

    config: AnnotationConfig
    num_messages: int = 200


FORMS = {
    "reasoned": Form(AnnotationConfig(llm_answer="reasoned", llm_max_tokens=256), 25),
    "label": Form(AnnotationConfig(llm_answer="label")),
    "constrained label": Form(AnnotationConfig(llm_answer="label", llm_constraint="llamacpp")),
}
SLOTS = 4
SEED = 1  # seed of the games


def measure(kind: str, form: str, addresses: dict[str, str], messages: Sequence[bytes]) -> dict[str, Any]:
    """Asks both judges about the messages. Returns their answers' counts, speed and agreement."""
    config = dataclasses.replace(FORMS[form].config, llm_max_in_flight=SLOTS)
    prompt = load_prompt(config, ENVIRONMENT.language, kind)
    items = make_items(prompt, messages[: FORMS[form].num_messages])
    asked, figures = {}, {}
    for model, address in addresses.items():
        model_config = dataclasses.replace(config, llm_server_addr=address, llm_model=model)
        start = time.monotonic()
        asked[model] = _ask(model_config, prompt, items)
        figures[model] = _figures(asked[model], prompt, time.monotonic() - start)
    both = compare(prompt, *asked.values())
    return {
        "kind": kind,
        "form": form,
        "judges": figures,
        "num_readable_by_both": both.num_both,
        "agreement": both.num_equal / both.num_both if both.num_both else None,
        "kappa": both.kappa,
    }


def _ask(config: AnnotationConfig, prompt: Prompt, items: Sequence[Item]) -> list[Asked]:
    asked, problem = ask_all(Question(config, prompt), items, lambda _: None, StopRequest())
    if problem:
        raise problem
    return asked


def _figures(asked: Sequence[Asked], prompt: Prompt, secs: float) -> dict[str, Any]:
    readable = [query.answer for query in asked if query.answer is not None]
    tokens = total_tokens(tokens_of(query, prompt, has_counts=True) for query in asked)
    return {
        "num_queries": len(asked),
        "readable_at_first": sum(query.replies[0].answer is not None for query in asked if query.replies) / len(asked),
        "readable": len(readable) / len(asked),
        "labels": dict(Counter(", ".join(prompt.kind.read_as(answer)) for answer in readable).most_common()),
        "queries_per_sec": len(asked) / secs,
        "median_secs": statistics.median(x for query in asked for x in query.secs),
        "prompt_tokens": tokens.prompt / len(asked),
        "written_tokens": tokens.completion / len(asked),
    }


def main() -> None:
    messages = collect(sized(max(form.num_messages for form in FORMS.values()), 4), SEED)
    with (
        tempfile.TemporaryDirectory() as folder,
        LlamaServer(pathlib.Path(folder), f"--slots={SLOTS}", "--context=4096") as model,
        closing(EmbeddedJudge(ENVIRONMENT.language)) as judge,
    ):
        addresses = {MODEL_NAME: model.address, JUDGE_MODEL: judge.address}
        found = [measure(kind, form, addresses, messages) for kind in KINDS for form in FORMS]
    write_report(JSON.value, {"asked": found})


if __name__ == "__main__":
    run_app(main)
