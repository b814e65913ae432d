"""Failures of a request: the name that each is counted under, and how its items are handled.

| name | what happened | rule |
|---|---|---|
| unreachable | no connection, or none within 10 s | requeue |
| http_429, 502, 503, 521, 522, 523, 529, 530 | overloaded, or away | requeue; honour Retry-After up to 20 s |
| quota_used_up, balance_used_up | 402, or a refusal that speaks of quota, credit or balance | requeue |
| proxy, certificate | the proxy of the environment fails; the server's certificate is not trusted | requeue |
| wrong_key, wrong_model, redirected, http_404 | 401 or 403; the model is reported missing; any 3xx | requeue |
| web_page | a page for people, as of a login or a firewall, in place of an answer | requeue |
| error_answer | status 200, but an error as the answer or in a choice; it counts as the status it names | requeue |
| context_full | the context that parallel requests share is full, or the server's memory | requeue, fewer in flight |
| filtered | a content filter refuses the prompt, or removes the answer, or the model refuses | put aside |
| http_<any other> | refused: a prompt too long, a dead worker, a server bug | split |
| timed_out, too_slow | time-out: no answer, or an incomplete one, within llm_timeout_secs | split |
| disconnected, bad_http | connection lost; malformed HTTP | split |
| too_large, broken_json | answer over the size limit; no JSON object with `choices` | split |
| too_few_choices, too_many_choices, bad_indices | not one choice for each prompt | split |
| bad_vectors | embeddings: not one vector of finite numbers for each text, or one of zeros | split |
| unexpected_<exception> | a bug of this client | split |
| unreadable, empty_text | an answer without a label, or with several; others of its list are kept | ask again |
| only_reasoning | the answer is reasoning alone, or was cut off in it; after 8 in a row, or where a server refuses \
for it: requeue | ask again |
| kind_raises | the kind of query, as a plugin's, raises an error as it renders or reads | put aside; a line says it |
| label_store | labels can't be written (disk full) | retry every 10 s; no requests meanwhile |

- put aside: a list is halved first. `annotation/filtered_fraction` counts them: what is filtered is no random sample,
  and a reward without labels of fights is biased.
- requeue, fewer in flight: half as many requests at a time, then slowly more again. A request that was alone in flight
  is at fault itself: split.
- requeue: the items are not at fault. They are requeued behind the others, and one small request at a time probes the
  server, with exponential backoff from 0.25 s to 10 s.
- split: a list is halved until the item that it fails for is alone. That one is retried `llm_max_retries` times, with
  the same backoff, and then put aside: it has no label in this run; the next run asks again.
  Lists get shorter after timed_out, too_slow and http_413, 429, 502, 503, 504, and longer again with each good answer.
- ask again: the item is asked about once more, with the first answer in the conversation, and then put aside.

Choices out of order are sorted by their indices and counted as events/choices_reordered. No redirect is followed:
captions and key go to the configured address, and to no other.
"""

import dataclasses
import email.utils
import re
import time
from collections.abc import Mapping

OVERLOADED = (429, 502, 503, 521, 522, 523, 529, 530)
QUOTA, BALANCE = "quota_used_up", "balance_used_up"
FILTERED, CONTEXT_FULL, WEB_PAGE, ERROR_ANSWER = "filtered", "context_full", "web_page", "error_answer"
ONLY_REASONING, KIND_RAISES = "only_reasoning", "kind_raises"
WAITING = "waiting for server"
STATES = {  # state of a run while requests fail so; else it is waiting
    "wrong_key": "wrong key",
    "wrong_model": "wrong model",
    "redirected": "redirected to another address",
    "proxy": "proxy fails",
    "certificate": "certificate is not trusted",
    QUOTA: "quota used up",
    BALANCE: "balance used up",
    WEB_PAGE: "a web page answers, no LLM",
    ONLY_REASONING: "the model only reasons",
}
MAX_DETAIL_CHARS = 300
SHORTER_LISTS_AFTER = ("timed_out", "too_slow", "http_413", "http_429", "http_502", "http_503", "http_504")
FILTER_WORDS = re.compile(
    r"content[ _-]?filter|content[ _](management )?policy|responsible ?ai ?polic|usage polic|moderation"
    r"|safety (system|settings|filter|guidelines)|violat\w+ .{0,40}(polic|terms|guidelines)"
    r"|(polic\w+|terms of \w+) violation|\bflagged\b|\b(unsafe|inappropriate|harmful) content|\bunsafe\b"
    r"|(prompt|content|input|output|response)[ _]((was|is|has been|were) )?blocked|blocked .{0,40}\bsafety\b"
    r"|(\b|_)(?<!case[ _-])sensitive|data_?inspection_?failed|content exists risk|prohibited_content|high risk"
    r"|guardrail|\"filtered\": ?true|block_?reason|敏感|不安全|违规",
    re.I,
)
FILTER_STATUSES = (400, 403, 422, 446, 451, 500)
_PAYMENT_STATUSES = (400, 401, 402, 403, 429)
BALANCE_WORDS = re.compile(
    r"(insufficient|low|exhausted|negative|not enough|no)[ _-]+(account[ _-]+)?(balance|credits?|funds)\b|arrearage"
    r"|(balance|credits?|funds)[a-z ]* (is|are|has been|have been) "
    r"(too low|insufficient|exhausted|used up|depleted|not enough)|out of credits?|payment required"
    r"|(more|buy|add|purchase) credits|can only afford|(billing|subscription) .{0,20}(expired|inactive|overdue)"
    r"|check your billing|余额|欠费",
    re.I,
)
_QUOTA = re.compile(
    r"insufficient_?quota|(current|your|monthly|daily|billing)[ _]quota|(quota|billing|spend)\w*[ _](hard_)?limit"
    r"|\bper[ -]day\b|(daily|monthly|usage) limit",
    re.I,
)
_CONTEXT_FULL = re.compile(
    r"context (size |length |window )?(has been |was |is )?(exceeded|full)\b|kv[ _-]?(cache|slot)|cache blocks"
    r"|memory slot|out of memory",
    re.I,
)
_LOGIN = re.compile(r"(log|sign)[-_]?in\b|\bsso\b|saml|oauth|\bauth", re.I)
BAD_KEY = re.compile(
    r"api[ _-]?key.{0,40}(valid|incorrect|missing|expired|required)|(invalid|incorrect) api[ _-]?key", re.I
)
_MODEL = re.compile("model", re.I)
_NO_MODEL = re.compile(
    r"(model|deployment)[ _]?(\S{1,80} )?(does )?not[ _]?(exist|found)|(invalid|unknown|no such) (model|deployment)\b",
    re.I,
)
_SPENT = re.compile(r"could not finish the message|\b(?:max_\w{0,20}tokens|output limit)\b.{0,40}\breached", re.I)
_TOO_LONG = re.compile(r"context|too long|length|tokens", re.I)  # may name the model too, but the prompt is at fault


@dataclasses.dataclass(eq=False)
class RequestError(Exception):
    """A request that brought no replies. `name` is what it is counted under."""

    name: str
    detail: str = ""  # one line, for people; without the key
    status: int = 0
    server_at_fault: bool = False  # the rule is `requeue`: the same prompts may succeed later
    retry_after_secs: float = 0.0
    text: str = dataclasses.field(default="", repr=False)  # the server's, whole

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"

    @property
    def is_passing(self) -> bool:
        """The server is overloaded or not paid: never the fault of an item, whatever others get meanwhile."""
        return self.status in OVERLOADED or self.name in (QUOTA, BALANCE)

    @property
    def is_overload(self) -> bool:
        """The server says that it has too much to do now."""
        return (self.status in OVERLOADED or self.name == CONTEXT_FULL) and self.name not in (QUOTA, BALANCE)

    @property
    def is_of_the_items(self) -> bool:
        """The server works, and refuses these items."""
        return self.name == FILTERED or (400 <= self.status < 500 and not self.server_at_fault)

    @property
    def is_of_the_fields(self) -> bool:
        """A field of the request may be at fault."""
        return self.name not in (FILTERED, CONTEXT_FULL, ONLY_REASONING, QUOTA, BALANCE)


def read_refusal(
    status: int, headers: Mapping[str, str], text: str, model: str, names_field: bool = False
) -> RequestError:
    """Classifies an HTTP status other than 200. The status is not reliable: a dead worker may answer 400.

    Args:
        status: the HTTP status.
        headers: of the answer.
        text: the server's whole error text, one line.
        model: the one requested.
        names_field: it names a field of the request, or a role: the model is there.
    """
    return dataclasses.replace(_read_refusal(status, headers, text, model, names_field), text=text)


def _read_refusal(status: int, headers: Mapping[str, str], text: str, model: str, names_field: bool) -> RequestError:
    detail, wait_secs = text[:MAX_DETAIL_CHARS], retry_after_secs(headers.get("Retry-After", ""))
    if status == 451 or (status in FILTER_STATUSES and FILTER_WORDS.search(text)):
        return RequestError(FILTERED, detail, status)
    if name := _unpaid(status, text):
        return RequestError(name, detail, status, server_at_fault=True, retry_after_secs=wait_secs)
    if status in (401, 403) or (status == 400 and BAD_KEY.search(text)):
        return RequestError("wrong_key", f"the server refuses the key: {detail}", status, server_at_fault=True)
    if status in (400, 422) and _SPENT.search(text):  # gpt-5, where its reasoning takes all tokens
        return RequestError(ONLY_REASONING, detail, status, server_at_fault=True)
    is_named = re.search(rf"(?<!\w){re.escape(model)}(?!\w)", text) and not _TOO_LONG.search(text.replace(model, ""))
    is_missing = is_named and (status == 404 or (status == 400 and _MODEL.search(text)))
    if not names_field and (is_missing or (status in (400, 404, 422, 500) and _NO_MODEL.search(text))):
        return RequestError("wrong_model", f"the server has no model {model}: {detail}", status, server_at_fault=True)
    if 300 <= status < 400:
        login = "to a login, so it is no API" if _LOGIN.search(headers.get("Location", "")) else "to another address"
        detail = f"the server redirects {login}; name the address that you trust. {detail}"
        return RequestError("redirected", detail, status, server_at_fault=True)
    if status == 404:
        return RequestError("http_404", f"no such endpoint (--llm_api): {detail}", status, server_at_fault=True)
    if status in (400, 413, 500) and _CONTEXT_FULL.search(text):
        return RequestError(CONTEXT_FULL, detail, status)
    return RequestError(f"http_{status}", detail, status, status in OVERLOADED, wait_secs)


def _unpaid(status: int, text: str) -> str:
    """Returns the name of a refusal for lack of money; empty: it is another."""
    if status not in _PAYMENT_STATUSES:
        return ""
    if _QUOTA.search(text) or (status != 429 and "quota" in text.lower()):
        return QUOTA
    return BALANCE if status == 402 or BALANCE_WORDS.search(text) else ""


def one_line(text: str, max_chars: int) -> str:
    """Sanitises untrusted text to one short printable line."""
    text = " ".join(text.split())[:max_chars]
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def retry_after_secs(text: str) -> float:
    """Parses Retry-After: seconds or an HTTP date. Returns seconds, unbounded; 0 for the past, and if unreadable."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text, re.ASCII):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
