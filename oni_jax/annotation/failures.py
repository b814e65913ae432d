"""How a request can fail: the name that it is counted under, and what becomes of the messages that it asked about.

| name | what happened | rule |
|---|---|---|
| unreachable | no connection, or none within 10 s | wait |
| http_429, http_502, http_503 | overloaded, or not ready yet | wait, and as long as Retry-After says, up to 20 s |
| wrong_key, wrong_model, redirected, http_404 | 401 or 403; the model is named as missing; any 3xx | wait |
| http_<any other> | refused: a prompt too long, a dead worker, a mistake of the server's | split |
| timed_out, too_slow | no answer, or only a part of one, within llm_timeout_secs | split |
| disconnected, bad_http | the connection broke; not the HTTP protocol | split |
| too_large, broken_json | more bytes than answers can have; no JSON object with `choices` | split |
| too_few_choices, too_many_choices, bad_indices | not one choice for each prompt | split |
| unexpected_<exception> | a mistake of this client's | split |
| unreadable, empty_text | an answer without a label, or with several; the other answers of its list count | once more |
| label_store | labels can't be written (disk full): tried again every 10 s | nothing more is asked meanwhile |

- wait: nothing is held against the messages. They go back to wait behind the others, and one small request at a time
  asks whether the server is well, after pauses that grow from 0.25 s to 10 s.
- split: a list is halved until the message that it fails for is alone. That one is asked `llm_max_retries` times more,
  after pauses that grow in the same way, and then put aside: it has no label in this run, the next run asks again.
  Lists get shorter after timed_out, too_slow and http_413, 429, 502, 503, 504, and longer again with each good answer.
- once more: the message is asked a second time, with the first answer in the conversation, and then put aside.

Choices that are out of order are put right by their indices and counted as events/choices_reordered. No redirect is
followed: messages and key go to the address that was named, and to no other.
"""

import dataclasses
import email.utils
import re
import time
from collections.abc import Mapping

OVERLOADED = (429, 502, 503)
SHORTER_LISTS_AFTER = ("timed_out", "too_slow", "http_413", "http_429", "http_502", "http_503", "http_504")
_NO_MODEL = re.compile("model", re.I)
_TOO_LONG = re.compile(r"context|too long|length|tokens", re.I)  # also names the model, and is the prompt's fault


@dataclasses.dataclass(eq=False)
class RequestError(Exception):
    """A request that brought no replies. `name` is what it is counted under."""

    name: str
    detail: str = ""  # one line, for people; without the key
    status: int = 0
    server_at_fault: bool = False  # the rule is `wait`: the same prompts may do later
    retry_after_secs: float = 0.0


def read_refusal(status: int, headers: Mapping[str, str], detail: str, model: str) -> RequestError:
    """A status other than 200, by name. It is not to be trusted: a dead worker may be a 400.

    Args:
        status: HTTP's.
        headers: of the answer.
        detail: the server's words, in a line.
        model: that was asked for.
    """
    if status in (401, 403):
        return RequestError("wrong_key", f"the server refuses the key: {detail}", status, server_at_fault=True)
    missing = _NO_MODEL.search(detail) and model in detail and not _TOO_LONG.search(detail.replace(model, ""))
    if status in (400, 404) and missing:
        return RequestError("wrong_model", f"the server has no model {model}: {detail}", status, server_at_fault=True)
    if 300 <= status < 400:
        detail = f"the server redirects elsewhere; name that address if you trust it. {detail}"
        return RequestError("redirected", detail, status, server_at_fault=True)
    if status == 404:
        return RequestError("http_404", f"no such endpoint (--llm_api): {detail}", status, server_at_fault=True)
    wait_secs = retry_after_secs(headers.get("Retry-After", ""))
    return RequestError(f"http_{status}", detail, status, status in OVERLOADED, wait_secs)


def retry_after_secs(text: str) -> float:
    """Seconds, from a number or an HTTP date; 0 for anything else, and for the past. Without a bound."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text, re.ASCII):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0
