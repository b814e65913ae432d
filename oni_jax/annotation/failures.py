"""Failures of a request: the name that each is counted under, and how its items are handled.

| name | what happened | rule |
|---|---|---|
| unreachable | no connection, or none within 10 s | requeue |
| http_429, http_502, http_503 | overloaded, or not ready yet | requeue, and honour Retry-After up to 20 s |
| wrong_key, wrong_model, redirected, http_404 | 401 or 403; the model is reported missing; any 3xx | requeue |
| http_<any other> | refused: a prompt too long, a dead worker, a server bug | split |
| timed_out, too_slow | time-out: no answer, or an incomplete one, within llm_timeout_secs | split |
| disconnected, bad_http | connection lost; malformed HTTP | split |
| too_large, broken_json | answer over the size limit; no JSON object with `choices` | split |
| too_few_choices, too_many_choices, bad_indices | not one choice for each prompt | split |
| unexpected_<exception> | a bug of this client | split |
| unreadable, empty_text | an answer without a label, or with several; others of its list are kept | ask again |
| only_reasoning | the answer is reasoning alone, or was cut off in it; after 8 in a row, or where a server refuses \
for it: requeue | ask again |
| label_store | labels can't be written (disk full) | retry every 10 s; no requests meanwhile |

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

OVERLOADED = (429, 502, 503)
ONLY_REASONING = "only_reasoning"
SHORTER_LISTS_AFTER = ("timed_out", "too_slow", "http_413", "http_429", "http_502", "http_503", "http_504")
_NO_MODEL = re.compile("model", re.I)
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


def read_refusal(
    status: int, headers: Mapping[str, str], detail: str, model: str, text: str = "", names_field: bool = False
) -> RequestError:
    """Classifies an HTTP status other than 200. The status is not reliable: a dead worker may answer 400.

    Args:
        status: the HTTP status.
        headers: of the answer.
        detail: the server's error text, one line.
        model: the one requested.
        text: the server's error text, whole.
        names_field: it names a field of the request, or a role: the model is there.
    """
    error = _read_refusal(status, headers, detail, model, text or detail, names_field)
    return dataclasses.replace(error, text=text)


def _read_refusal(
    status: int, headers: Mapping[str, str], detail: str, model: str, text: str, names_field: bool
) -> RequestError:
    if status in (401, 403):
        return RequestError("wrong_key", f"the server refuses the key: {detail}", status, server_at_fault=True)
    if status in (400, 422) and _SPENT.search(text):  # gpt-5, where its reasoning takes all tokens
        return RequestError(ONLY_REASONING, detail, status, server_at_fault=True)
    is_named = re.search(rf"(?<!\w){re.escape(model)}(?!\w)", text)
    missing = is_named and _NO_MODEL.search(text) and not _TOO_LONG.search(text.replace(model, ""))
    if status in (400, 404) and missing and not names_field:
        return RequestError("wrong_model", f"the server has no model {model}: {detail}", status, server_at_fault=True)
    if 300 <= status < 400:
        detail = f"the server redirects to another address; name that one if you trust it. {detail}"
        return RequestError("redirected", detail, status, server_at_fault=True)
    if status == 404:
        return RequestError("http_404", f"no such endpoint (--llm_api): {detail}", status, server_at_fault=True)
    wait_secs = retry_after_secs(headers.get("Retry-After", ""))
    return RequestError(f"http_{status}", detail, status, status in OVERLOADED, wait_secs)


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
