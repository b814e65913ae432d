"""HTML in which nothing is left unescaped by mistake: a str is text, only `Html` is markup."""

import base64
import html
from collections.abc import Iterable, Sequence

VOID = ("img", "meta", "link", "br")  # tags that are never closed
PAGE_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"  # what a browser enforces


class Html(str):
    """Markup, made by the functions here alone."""


def escaped(content: object) -> Html:
    """`content` as it shall be read, unless it is markup already. What is no letter or sign is shown by its number."""
    if isinstance(content, Html):
        return content
    text = str(content)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return Html(html.escape(text))


def tag(name: str, /, *contents: object, **attributes: object) -> Html:
    """An element. An attribute's name may end in _, as `class_` does."""
    words = "".join(f' {key.rstrip("_")}="{escaped(value)}"' for key, value in attributes.items())
    inside = "".join(map(escaped, contents))
    return Html(f"<{name}{words}>" if name in VOID else f"<{name}{words}>{inside}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """One after another."""
    return Html("".join(map(escaped, parts)))


def table(header: Sequence[object], rows: Iterable[Sequence[object]], num_texts: int = 1) -> Html:
    """Rows of cells, of which the first `num_texts` are texts and the others numbers, in a box that may scroll."""
    kinds = ["text" if place < num_texts else "number" for place in range(len(header))]
    head = tag("tr", *(tag("th", cell, class_=kind) for cell, kind in zip(header, kinds)))
    body = [tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds))) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll")


def data_uri(data: bytes, media_type: str) -> str:
    """A file inside the page."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def page(title: str, style: str, *contents: object) -> bytes:
    """A document of its own that a browser lets load nothing from elsewhere, and run nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", **{"http-equiv": "Content-Security-Policy", "content": PAGE_POLICY}),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(style)),
    )
    document = tag("html", head, tag("body", *contents), lang="en")
    return f"<!doctype html>\n{document}\n".encode()
