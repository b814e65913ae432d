"""The check at a program's start: does a server answer, and is it one?"""

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp

from oni_jax.annotation.address import CONNECT_TIMEOUT_SECS, MODELS, request_headers, routes_to
from oni_jax.annotation.failures import MAX_DETAIL_CHARS, WEB_PAGE, RequestError, one_line, read_refusal
from oni_jax.annotation.pages import PAGE_ADVICE, PAGE_STATUSES, page_words
from oni_jax.annotation.routes import Route
from oni_jax.host.reporting import report
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError

MAX_PAGE_BYTES = 1 << 16


def check_server(config: AnnotationConfig) -> None:
    """Checks address, proxy and key. Of several servers it prints a line for each that does not answer.

    Raises:
        UserError: a bad address, proxy or key; with --llm_required, no server answers.
    """
    routes, (headers, _) = routes_to(config, MODELS), request_headers(config)
    several = len(routes) > 1
    if not config.llm_required and not several:
        return
    problems = asyncio.run(_problems(routes, headers))
    for route, problem in zip(routes, problems):
        if problem and several:
            report(f"warning: the LLM server at {route.url} is left out, and tried again: {problem}")
    if config.llm_required and all(problems):
        raise UserError(_refusal(config.llm_server_addr, routes[0], problems[0]))


def _refusal(address: str, route: Route, problem: RequestError | None) -> str:
    if problem and problem.name != "unreachable":
        return f"the LLM server at {address}: {problem}"
    return (
        f"no LLM server answers at {address} ({route.url}): start it, or leave out --llm_required to train while "
        "waiting for it"
    )


async def _problems(routes: Sequence[Route], headers: Mapping[str, str]) -> list[RequestError | None]:
    timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_SECS)
    async with aiohttp.ClientSession(timeout=timeout, headers=dict(headers)) as session:
        return list(await asyncio.gather(*(_problem(session, route) for route in routes)))


async def _problem(session: aiohttp.ClientSession, route: Route) -> RequestError | None:
    """Returns a server's fault; None: it has none."""
    try:
        async with session.get(route.url, allow_redirects=False, **route.options()) as response:
            page = page_words(await response.content.read(MAX_PAGE_BYTES))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return route.failure(error) or RequestError("unreachable", one_line(repr(error), MAX_DETAIL_CHARS))
    if response.status == 407 and route.proxy:
        return route.refused_by_proxy(407, response.reason or "")
    if page and response.status in PAGE_STATUSES:
        return RequestError(WEB_PAGE, f"{page}: {PAGE_ADVICE}")
    if response.status in (401, 403):
        return RequestError("wrong_key", "refuses the key: see --llm_api_key")
    if 300 <= response.status < 400:
        location = one_line(response.headers.get("Location", ""), MAX_DETAIL_CHARS)
        return read_refusal(response.status, response.headers, location, "")
    return None
