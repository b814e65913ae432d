"""Address of the LLM server, and the key that it requires."""

import os
import re
import urllib.parse

from oni_jax.annotation.routes import Route, find_route
from oni_jax.settings.annotation import AnnotationConfig, check_annotation
from oni_jax.settings.extra_fields import extra_headers
from oni_jax.settings.fields import UserError

DEFAULT_PORT = 9001
CONNECT_TIMEOUT_SECS = 10.0
MAX_KEY_CHARS = 10_000
MODELS = "models"  # endpoint that lists them
_HINT = "must be host, host:port or an http(s) URL"
# The last is Ollama's older API, which has no part of the address in common with the one that is asked.
_ENDPOINT = re.compile(
    r"/(chat/completions|completions|embeddings|models|responses|messages|api/(chat|generate)|chat)/*$", re.I
)


def server_urls(address: str) -> list[str]:
    """Returns the base URLs of the servers of one reward, joined by + or commas; see `server_url`.

    Raises:
        UserError: one of them is none, or named twice, or both signs are used: commas also part rewards.
    """
    if re.search(r"[@?#]", address):
        return [server_url(address)]  # refused there
    if "+" in address and "," in address:
        raise UserError(
            f"--llm_server_addr {address!r}: + joins the servers of one reward, commas part those of several rewards; "
            "for one reward use one of the two"
        )
    urls = [server_url(part) for part in re.split("[+,]", address)]
    if twice := [url for url in urls if urls.count(url) > 1]:
        raise UserError(f"--llm_server_addr {address!r}: names {twice[0]} twice; leave one out")
    return urls


def server_url(address: str) -> str:
    """Returns the base URL of an address: host, host:port (default 9001) or an http(s) URL; `/v1` unless it has a path.

    A whole endpoint, such as http://host/v1/chat/completions, counts as its base.

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
        raise UserError(
            "--llm_server_addr: must hold no password, query or fragment; see --llm_api_key for a key, "
            "--llm_api_version for Azure's ?api-version="
        )
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
    is_scheme = host in ("http", "https")  # the colon was forgotten, as in http//host
    if parts.scheme not in ("http", "https") or not plain or not whole or is_scheme:
        raise UserError(f"--llm_server_addr {address!r}: {_HINT}")
    return f"{parts.scheme}://{netloc}{_ENDPOINT.sub('', parts.path).rstrip('/') or '/v1'}"


def endpoint_urls(config: AnnotationConfig, endpoint: str) -> list[str]:
    """Returns the URLs of an endpoint, such as chat/completions, one a server. Raises UserError: see `server_urls`."""
    return [_endpoint_url(config, base, endpoint) for base in server_urls(config.llm_server_addr)]


def routes_to(config: AnnotationConfig, endpoint: str) -> list[Route]:
    """Returns the routes to an endpoint of each server. Raises UserError: a bad address or proxy."""
    return [find_route(url) for url in endpoint_urls(config, endpoint)]


def _endpoint_url(config: AnnotationConfig, base: str, endpoint: str) -> str:
    """Returns an endpoint's URL. With `llm_api_version` it is Azure OpenAI's: the path names the deployment, and a
    query the version."""
    if not config.llm_api_version:
        return f"{base}/{endpoint}"
    root = re.sub(r"/deployments/[^/]+$", "", base).removesuffix("/v1")
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
