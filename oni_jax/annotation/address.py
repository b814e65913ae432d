"""Address of the LLM server, and the key that it requires."""

import asyncio
import os
import re
import urllib.parse
from collections.abc import Mapping

import aiohttp

from oni_jax.settings.annotation import AnnotationConfig, check_annotation
from oni_jax.settings.extra_fields import extra_headers
from oni_jax.settings.fields import UserError

DEFAULT_PORT = 9001
CONNECT_TIMEOUT_SECS = 10.0
MAX_KEY_CHARS = 10_000
MODELS = "models"  # endpoint that lists them
_HINT = "must be host, host:port or an http(s) URL"


def server_url(address: str) -> str:
    """Returns the base URL of an address: host, host:port (default 9001) or an http(s) URL; `/v1` unless it has a path.

    Raises:
        UserError: anything else.
    """
    text = address.strip()
    if "://" not in text:
        text = f"http://{text}" if text.count(":") < 2 or "[" in text else f"http://[{text}]"
        default_port = f":{DEFAULT_PORT}"
    else:
        default_port = ""
    if re.search(r"[@?#]", text):  # not shown: it may hold a secret
        raise UserError("--llm_server_addr: must hold no password, query or fragment; see --llm_api_key for a key")
    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UserError(f"--llm_server_addr {address!r}: {_HINT} ({error})") from None
    host = parts.hostname or ""
    # ASCII host names only: programs parse others differently, and the key must reach the host that the user means.
    plain = re.fullmatch(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*|[0-9a-f:.]+(%[a-z0-9]+)?", host)
    plain = plain and re.fullmatch(r"[!-\[\]-~]+", text)
    name = f"[{host}]" if ":" in host else host
    netloc = f"{name}{default_port}" if port is None else f"{name}:{port}"
    whole = parts.netloc.lower() in (name, netloc)  # nothing but host and port
    if parts.scheme not in ("http", "https") or not plain or not whole:
        raise UserError(f"--llm_server_addr {address!r}: {_HINT}")
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/') or '/v1'}"


def endpoint_url(config: AnnotationConfig, endpoint: str) -> str:
    """Returns the URL of an endpoint, such as chat/completions. Raises UserError: see `server_url`.

    With `llm_api_version` it is Azure OpenAI's, where the path names the deployment, and a query the version.
    """
    base = server_url(config.llm_server_addr)
    if not config.llm_api_version:
        return f"{base}/{endpoint}"
    root = base.removesuffix("/v1")
    root = root if root.endswith("/openai") else f"{root}/openai"
    deployment = f"deployments/{urllib.parse.quote(config.llm_model, safe='')}/" * (endpoint != MODELS)
    return f"{root}/{deployment}{endpoint}?api-version={config.llm_api_version}"


def api_key_header(config: AnnotationConfig) -> dict[str, str]:
    """Returns the Authorization header, or Azure OpenAI's api-key header; empty without a key.

    Raises:
        UserError: `llm_api_key` names no key, or one that no header can hold. The text holds neither key nor source.
    """
    check_annotation(config)
    source, _, name = config.llm_api_key.partition(":")
    key = _first_line(os.path.expanduser(name)) if source == "file" else os.environ.get(name or "OPENAI_API_KEY", "")
    key = key.strip()
    if name and not key:
        where = "the first line of that file" if source == "file" else "that environment variable"
        raise UserError(f"--llm_api_key {source}:...: there is no key in {where}")
    if not key.isascii() or not key.isprintable():
        raise UserError("--llm_api_key: the key that it names can't be sent: it must be printable ASCII")
    if not key:
        return {}
    return {"api-key": key} if config.llm_api_version else {"Authorization": f"Bearer {key}"}


def request_headers(config: AnnotationConfig) -> tuple[dict[str, str], list[str]]:
    """Returns the headers of every request, the key's among them, and the secrets in their values.

    Raises:
        UserError: a key or header can't be sent, or an environment variable is missing. The text holds no secret.
    """
    headers = api_key_header(config)
    secrets = [value.removeprefix("Bearer ") for value in headers.values()]
    for name, value in extra_headers(config.llm_extra_headers).items():
        if value.startswith("env:"):
            value = os.environ.get(variable := value.removeprefix("env:"), "").strip()
            if not value or not value.isascii() or not value.isprintable():
                raise UserError(
                    f"--llm_extra_headers: {name} is to be ${variable}, which is not set to printable ASCII"
                )
            secrets.append(value)
        headers = {key: x for key, x in headers.items() if key.lower() != name.lower()} | {name: value}
    return headers, secrets


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline(MAX_KEY_CHARS)
    except (OSError, ValueError):
        return ""


def check_server(config: AnnotationConfig) -> None:
    """Checks address and key, and, with --llm_required, that the server answers. Raises UserError."""
    url, (headers, _) = endpoint_url(config, MODELS), request_headers(config)
    if not config.llm_required:
        return
    try:
        status = asyncio.run(_get_status(url, headers))
    except (aiohttp.ClientError, TimeoutError, ValueError):
        advice = "start it, or leave out --llm_required to train while waiting for it"
        raise UserError(f"no LLM server answers at {config.llm_server_addr} ({url}): {advice}") from None
    if status in (401, 403):
        raise UserError(f"the LLM server at {config.llm_server_addr} refuses the key: see --llm_api_key")


async def _get_status(url: str, headers: Mapping[str, str]) -> int:
    timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_SECS)
    async with aiohttp.ClientSession(timeout=timeout, headers=dict(headers)) as session:
        async with session.get(url, allow_redirects=False) as response:
            return response.status
