"""Pages for people, which logins and gateways send in place of the API's JSON."""

import html
import re

from oni_jax.annotation.failures import one_line

MAX_TITLE_CHARS = 80
PAGE_ADVICE = "name the API's address (most end in /v1), and see that no login or proxy stands before it"
PAGE_STATUSES = (200, 403)  # statuses whose page is no answer of the API's; other statuses say what failed
_PAGE = re.compile(
    r"\s*(<!--.{0,2000}?-->\s*)?<(!doctype|\?xml|html|head|body|title|meta|link|script|noscript|style|div|center|h[1-6]|p"
    r"|pre|form|iframe)\b",
    re.I | re.S,
)
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1", re.I | re.S)


def page_words(raw: bytes) -> str:
    """Returns what a page is, with its title; empty: the bytes are no page."""
    text = raw[:100_000].decode("utf-8-sig", "replace")
    if not _PAGE.match(text):
        return ""
    title = _TITLE.search(text)
    words = f" ({one_line(html.unescape(title[2]), MAX_TITLE_CHARS)})" if title else ""
    return f"a web page{words}, not the API's JSON"
