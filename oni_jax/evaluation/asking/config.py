"""Settings of launch.ask: those of a training, and what is asked under them."""

import dataclasses

from oni_jax.annotation.queries.registry import QUERIES
from oni_jax.host.plugins import load_plugins
from oni_jax.rewards.registry import reward_type
from oni_jax.settings.annotation import AnnotationConfig, check_asks_apart
from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError, setting

SEPARATOR = "\0"  # separator of messages; no command line holds it


@dataclasses.dataclass(frozen=True)
class AskConfig:
    """Captions to ask an LLM about, before a training does."""

    message: str = setting("", "Caption to ask about; may be given several times.", repeated=SEPARATOR)
    messages_csv: str = setting("", "CSV file of captions, such as the messages.csv of launch.inspect_reward.")
    messages_column: str = setting("message", "Column of messages_csv that holds them, escaped as in that file.")
    messages_of: str = setting(
        "", "Folder of a run, which may be going on: the captions that it met are asked about, the most frequent first."
    )
    num_messages: int = setting(20, "Captions taken of a file or a run.", within="[1, inf)")
    query: str = setting(
        "",
        "Kind of query: classification, ranking, code, segments, goals, suggestions, "
        "suggestions_strict, yes_no, a plugin's; empty: by llm_reward_type.",
    )
    compare_models: str = setting(
        "", "Models that are asked the same, with commas between them, and compared; they replace llm_model."
    )
    show_prompts: bool = setting(False, "Show each query's prompt in full, not only the first one's.")


@dataclasses.dataclass(frozen=True)
class Ask(Config):
    """Settings of launch.ask."""

    ask: AskConfig = AskConfig()


def check_ask(config: Ask) -> None:
    """Raises UserError: bad values, or nothing is asked."""
    check_config(config)
    needs_captions = any(QUERIES[kind].placeholders for _, kind in queries_of(config))
    has_captions = config.ask.message.strip(SEPARATOR) or config.ask.messages_csv or config.ask.messages_of
    if needs_captions and not has_captions:
        raise UserError('nothing to ask about: give --message "You kill the newt!", --messages_csv or --messages_of')


def queries_of(config: Ask) -> list[tuple[AnnotationConfig, str]]:
    """Returns what is asked, each once: settings and kind of query.

    Raises:
        UserError: there is none, an unknown kind or reward, or nothing to compare.
    """
    load_plugins(config.env.plugin)
    check_asks_apart(config.annotation)
    query, models = config.ask.query, config.ask.compare_models
    if query and query not in QUERIES:
        raise UserError(
            f"--query {query}: is not known; use one of {', '.join(QUERIES)}; one of your own needs --plugin"
        )
    kinds = [(term.annotation, query or reward_type(term).query) for term in config.terms_by_goal()]
    asked = [(annotation, kind) for annotation, kind in kinds if kind]
    if not asked:
        name = ",".join(term.reward.llm_reward_type for term in config.terms())
        raise UserError(f"--llm_reward_type {name}: asks no LLM while it trains; name the kind of query with --query")
    if models:
        names = [*dict.fromkeys(name.strip() for name in models.split(",") if name.strip())]
        if len(names) < 2:
            raise UserError(f"--compare_models {models}: names no two models; write --compare_models one,another")
        if not all(annotation.llm_server_addr for annotation, _ in asked):
            raise UserError(f"--compare_models {models}: are models of a server; name it with --llm_server_addr")
        asked = [
            (dataclasses.replace(annotation, llm_model=name), kind) for annotation, kind in asked for name in names
        ]
    return [*dict.fromkeys(asked)]
