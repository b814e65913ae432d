"""Settings of the LLM server, its requests and its prompts."""

import dataclasses
import re

from oni_jax.settings.extra_fields import extra_body, extra_headers
from oni_jax.settings.fields import COUNT, POSITIVE, UserError, given, setting

RECORDED, JUDGE = "recorded", "judge"  # values of --answers
REASONED, LABEL, BY_GOAL = "reasoned", "label", "goals"  # values of --llm_answer
# Keys of the package's prompts: of all, then NetHack's, BabyAI-Text's and Crafter's
GOAL_KEYS = ("defaultgoal", "zeroknowledge", "combat", "gold", "stairs", "keys", "balls", "boxes")
GOAL_KEYS += ("gathering", "fighting", "building", "feeding")


@dataclasses.dataclass(frozen=True)
class EmbeddedJudgeConfig:
    """The rule-based judge."""

    wrong_fraction: float = setting(
        0.0,
        "Fraction of its items that the judge answers wrongly.",
        within="[0, 1]",
        flag="judge_wrong_fraction",
    )
    wrong_seed: int = setting(
        0, "Seed of the items that the judge answers wrongly.", within="[0, inf)", flag="judge_wrong_seed"
    )
    latency_secs: float = setting(0.0, "Seconds before each answer of the judge.", flag="judge_latency_secs")


@dataclasses.dataclass(frozen=True)
class AnnotationConfig:
    """The LLM server, its requests and its prompts."""

    llm_server_addr: str = setting(
        "",
        "host, host:port (default: 9001) or URL; + joins several of one model; empty: see answers.",
        joined="+",
    )
    answers: str = setting(
        "",
        "Who answers: recorded (the package's), a file, or judge (fixed rules); empty: see docs/answers.md.",
    )
    llm_api_key: str = setting(
        "",
        "Location of the server's key: env:NAME or file:PATH; empty: $OPENAI_API_KEY.",
        secret=True,
    )
    llm_model: str = setting("Meta-Llama-3.1-8B-Instruct", "Name of the model, as the server knows it.")
    llm_api: str = setting(
        "chat", "Endpoint: one prompt per request, or lists of prompts.", choices=("chat", "completions")
    )
    llm_api_version: str = setting(
        "",
        "Azure OpenAI: version of its API, such as 2024-10-21; llm_model names the deployment.",
    )
    llm_chat_template: str = setting("llama3", "For completions: llama3, none, or a file holding {system} and {user}.")
    llm_answer: str = setting(
        REASONED,
        "Answer with knowledge, analysis and label in tags, one token, or a line for each goal of --goal_key.",
        choices=(REASONED, LABEL, BY_GOAL),
    )
    llm_constraint: str = setting(
        "none",
        "Syntax of the server that constrains an answer to the labels.",
        choices=("none", "vllm", "sglang", "llamacpp", "json_schema"),
    )
    llm_extra_body: str = setting(
        "",
        "JSON object of fields for every request.",
    )
    llm_extra_headers: str = setting(
        "",
        "JSON object of headers for every request; a value env:NAME is that variable's.",
        secret=True,
    )
    llm_batch_size: int = setting(
        100, "Most prompts in a request of completions, and answers in a commit.", within=COUNT
    )
    llm_max_in_flight: int = setting(16, "Most requests in flight of a reward type.", within=COUNT)
    llm_max_per_sec: float = setting(
        0.0,
        "Most prompts a second of a reward type; 0: no limit, but 100 to a judge on the same CPU.",
        within="[0, inf)",
    )
    llm_max_backlog: int = setting(10000, "Most pending queries; the oldest beyond are dropped.", within=COUNT)
    llm_temperature: float = setting(0.1, "Sampling temperature.")
    llm_max_tokens: int = setting(4096, "Longest answer, in tokens.", within=COUNT)
    llm_timeout_secs: float = setting(120.0, "Time-out of a request, which is then retried.", within=POSITIVE)
    llm_max_retries: int = setting(5, "Retries of a failing query before it is put aside.")
    llm_max_labels: int = setting(0, "Most answers for a model and a prompt; 0: all.")
    ask: str = setting(
        "auto",
        "Asked next: what a model is unsure of, or all that is new; auto: uncertain with --goal_suggester model.",
        choices=("auto", "uncertain", "new"),
    )
    llm_required: bool = setting(False, "End at once when no server answers at the start.")
    prompt_version: str = setting("default", "Wording of the prompt.", choices=("default", "reworded"))
    goal_key: str = setting(
        "defaultgoal",
        "Goal in the prompt; several, with commas: one agent for all, with --goal_conditioned.",
        choices=GOAL_KEYS,
        several=True,
    )
    goal: str = setting("", "The player's goal in your own words; replaces goal_key's.")
    prompt_file: str = setting("", "Your own prompt, in the format of oni_jax/envs/nethack/prompts/*.json.")
    label_store: str = setting("", "SQLite file of labels; empty: <train_dir>/<experiment>/labels.sqlite.")
    judge: EmbeddedJudgeConfig = EmbeddedJudgeConfig()


def check_asks_apart(annotation: AnnotationConfig) -> None:
    """Raises UserError: one query is to ask about several goals, in a program that asks about one at a time."""
    if annotation.llm_answer == BY_GOAL:
        raise UserError(
            f"--llm_answer {BY_GOAL}: a training of several goals asks so; this program asks about one at a time, use "
            f"{REASONED} or {LABEL}"
        )


def check_keeps_answers(annotation: AnnotationConfig, where: str) -> None:
    """Raises UserError: settings of a training's label store, in a program that keeps its answers elsewhere.

    Args:
        annotation: the settings.
        where: they are kept.
    """
    check_asks_apart(annotation)
    if annotation.label_store:
        raise UserError(f"--label_store: answers are kept in {where}; leave it out")
    if annotation.llm_max_labels:
        raise UserError(f"--llm_max_labels {annotation.llm_max_labels}: limits what a training asks for; leave it out")


def check_annotation(annotation: AnnotationConfig) -> None:
    """Raises UserError: conflicting settings of the server, or a key instead of its location."""
    if not re.fullmatch(r"((env|file):.+)?", annotation.llm_api_key):
        raise UserError(
            "--llm_api_key: give the key's location, env:NAME or file:PATH; a key on the command line could be read "
            "by others on this machine"
        )
    if not re.fullmatch(r"[A-Za-z0-9.-]*", annotation.llm_api_version):
        raise UserError(f"--llm_api_version {annotation.llm_api_version!r}: must be a version such as 2024-10-21")
    extra_body(annotation.llm_extra_body)
    extra_headers(annotation.llm_extra_headers)
    replaced_by = "--llm_server_addr" if annotation.llm_server_addr else "--answers" if annotation.answers else ""
    if annotation.answers != JUDGE and replaced_by:
        for name, value in given(annotation.judge).items():
            raise UserError(f"--{name} {value}: is of the embedded judge, which {replaced_by} replaces; leave it out")
    if annotation.answers == JUDGE and annotation.llm_server_addr:
        raise UserError("--answers judge: answers in a server's stead; leave --llm_server_addr out")
    if annotation.llm_constraint != "none" and annotation.llm_answer == REASONED:
        raise UserError(
            f"--llm_constraint {annotation.llm_constraint}: constrains an answer to labels; add --llm_answer label"
        )
