"""Where the LLM server is, and the key that it wants."""

import asyncio
import os
import re
import urllib.parse
from collections.abc import Mapping

import aiohttp

from oni_jax.config import AnnotationConfig, UserError

DEFAULT_PORT = 9001
CONNECT_TIMEOUT_SECS = 10.0


def server_url(address: str) -> str:
    """The base URL of an address: host, host:port (9001 when left out) or an http(s) URL; `/v1` unless it has a path.

    Raises:
        UserError: anything else.
    """
    hint = "must be host, host:port or an http(s) URL"
    text = address.strip()
    if "://" not in text:
        text = f"http://{text}" if text.count(":") < 2 or "[" in text else f"http://[{text}]"
        default_port = f":{DEFAULT_PORT}"
    else:
        default_port = ""
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UserError(f"--llm_server_addr {address}: {hint} ({error})") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\s\x00-\x1f]", text):
        raise UserError(f"--llm_server_addr {address!r}: {hint}")
    if parts.username or parts.password or parts.query or parts.fragment or parts.netloc.endswith(":"):
        raise UserError(f"--llm_server_addr: {hint}, without a password, query or fragment (--llm_api_key holds a key)")
    netloc = parts.netloc if port is not None else f"{parts.netloc}{default_port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/') or '/v1'}"


def api_key_header(config: AnnotationConfig) -> dict[str, str]:
    """The Authorization header, empty without a key. Raises UserError for a key that no header can hold."""
    key = (config.llm_api_key or os.environ.get("OPENAI_API_KEY", "")).strip()
    if not key.isascii() or not key.isprintable():
        raise UserError("--llm_api_key holds characters that can't be sent; give it in plain ASCII, on one line")
    return {"Authorization": f"Bearer {key}"} if key else {}


def check_server(config: AnnotationConfig) -> None:
    """Raises UserError for a bad address or key, and, with --llm_required, when nothing answers there."""
    url, headers = server_url(config.llm_server_addr), api_key_header(config)
    if not config.llm_required:
        return
    try:
        status = asyncio.run(_get_status(f"{url}/models", headers))
    except (aiohttp.ClientError, TimeoutError, ValueError):
        advice = "start it, or leave out --llm_required to train while waiting for it"
        raise UserError(f"no LLM server answers at {config.llm_server_addr} ({url}): {advice}") from None
    if status in (401, 403):
        raise UserError(f"the LLM server at {config.llm_server_addr} refuses the key: set --llm_api_key")


async def _get_status(url: str, headers: Mapping[str, str]) -> int:
    timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_SECS)
    async with aiohttp.ClientSession(timeout=timeout, headers=dict(headers)) as session:
        async with session.get(url, allow_redirects=False) as response:
            return response.status
