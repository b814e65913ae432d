"""Proxies that the environment names, and certificates of a private CA."""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from oni_jax.annotation.client import Client
from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.health import check_server
from oni_jax.annotation.routes import find_route
from oni_jax.rewards.embeddings.embeddings import ServerEmbedder
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import fake_server, labels
from tests.annotation.test_client import LISTS, ask
from tests.support.asking import label_of, load_prompt
from tests.support.faults import free_port
from tests.support.proxy import proxy_to, tls_context

VARIABLES = [name for each in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (each, each.upper())]
HOST = "llm.example"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*VARIABLES, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """The context of a server, and its folder."""
    folder = tmp_path_factory.mktemp("tls")
    return tls_context(folder, HOST, "localhost"), folder


async def ask_at(address: str) -> Any:
    """The labels that a server's answer gives; the error where there is none."""
    config = dataclasses.replace(LISTS, llm_server_addr=address, llm_timeout_secs=5.0)
    async with Client(config, load_prompt(config)) as client:
        try:
            return [label_of(reply) for reply in await client.ask([(b"Hm.",)])]
        except RequestError as error:
            return error


def by_proxy(monkeypatch, variable, address, context: ssl.SSLContext | None = None, credentials="", **options):
    """Returns the result of a request to `address`, which a proxy takes for a scripted server, and its log."""

    async def body():
        async with server_of(label, context) as target, proxy_to(target, **options) as proxy:
            monkeypatch.setenv(variable, f"http://{credentials}{proxy.address}")
            found = await ask_at(address)
            return found, proxy.asked

    return asyncio.run(body())


@contextlib.asynccontextmanager
async def server_of(answer, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server, with TLS where a context is given; yields its address."""
    application = web.Application()
    application.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def label(request):
    return web.json_response({"choices": [{"index": 0, "text": "<label>FOO</label>"}]})


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_carries_requests(monkeypatch, variable):
    found, asked = by_proxy(monkeypatch, variable, f"http://{HOST}/v1")
    assert found == [1] and asked == [f"POST http://{HOST}/v1/completions HTTP/1.1"]


def test_proxy_carries_tls(monkeypatch, tls):
    context, folder = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    found, asked = by_proxy(monkeypatch, "HTTPS_PROXY", f"https://{HOST}/v1", context)
    assert found == [1] and asked == [f"CONNECT {HOST}:443 HTTP/1.1"]


def test_proxy_gets_its_password_and_no_line_shows_it(monkeypatch):
    address = f"http://{HOST}/v1"
    found, _ = by_proxy(monkeypatch, "HTTP_PROXY", address, credentials="me:S3CRET@", user="me:S3CRET")
    assert found == [1]
    for scheme, variable in (("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY")):
        found, _ = by_proxy(monkeypatch, variable, f"{scheme}://{HOST}/v1", credentials="me:S3CRET@", user="me:else")
        assert found.name == "proxy" and found.server_at_fault
        assert variable in found.detail and "user:password@" in found.detail and "S3CRET" not in found.detail


@pytest.mark.parametrize("scheme, variable", [("https", "HTTPS_PROXY"), ("http", "HTTP_PROXY")])
def test_proxy_that_refuses_is_named(monkeypatch, scheme, variable):
    found, _ = by_proxy(monkeypatch, variable, f"{scheme}://{HOST}/v1", status=503)
    assert found.server_at_fault and variable in found.detail and f"{HOST} in NO_PROXY" in found.detail
    assert found.name == ("proxy" if scheme == "https" else "http_503")  # it may be the server's


def test_dead_proxy_is_named_while_running_and_at_the_start(monkeypatch):
    monkeypatch.setenv("https_proxy", f"http://me:S3CRET@127.0.0.1:{free_port()}")
    found = asyncio.run(ask_at(f"https://{HOST}/v1"))
    assert found.name == "proxy" and "https_proxy" in found.detail and "S3CRET" not in found.detail
    config = AnnotationConfig(llm_server_addr=f"https://{HOST}", llm_required=True)
    with pytest.raises(UserError, match="https_proxy.*NO_PROXY") as error:
        check_server(config)
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize("value", ["socks5://me:S3CRET@h:1080", "ftp://h", "http://", "http://h:port", "http://h:1 2"])
def test_variable_that_names_no_proxy_is_refused_in_a_line(monkeypatch, value):
    monkeypatch.setenv("HTTPS_PROXY", value)
    config = AnnotationConfig(llm_server_addr=f"https://{HOST}")
    with pytest.raises(UserError, match="HTTPS_PROXY: must be a proxy's http://host:port") as error:
        Client(config, load_prompt(config))
    assert "S3CRET" not in str(error.value) and str(error.value).isprintable()


@pytest.mark.parametrize(
    "url", ["http://localhost:9001/v1", "http://127.0.0.1:1/v1", "http://[::1]:1/v1", "http://127.9.9.9"]
)
def test_localhost_is_never_reached_by_a_proxy(url):
    assert not find_route(url, {"HTTP_PROXY": "http://proxy:3128", "ALL_PROXY": "socks5://proxy"}).proxy


def test_requests_to_this_machine_reach_no_proxy(monkeypatch):
    for name in VARIABLES[:6]:
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    replies, _, _ = ask(labels, LISTS, [b"Hm."])
    assert label_of(replies[0]) == 1


@pytest.mark.parametrize(
    "direct, is_direct",
    [
        ("llm.example", True),
        ("LLM.Example", True),
        (".example", True),
        ("example", True),
        ("*.example", True),
        ("*", True),
        ("other, llm.example", True),
        ("llm.example:443", True),
        ("llm.example:8000", False),
        ("m.example", False),
        ("other", False),
        ("", False),
        ("10.0.0.0/8", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_lists_hosts_to_reach_directly(name, direct, is_direct):
    route = find_route("https://llm.example/v1", {"HTTPS_PROXY": "proxy:3128", name: direct})
    assert bool(route.proxy) != is_direct


@pytest.mark.parametrize("direct, is_direct", [("10.0.0.0/8", True), ("10.1.2.3", True), ("10.2.0.0/16", False)])
def test_no_proxy_lists_addresses_and_networks(direct, is_direct):
    route = find_route("http://10.1.2.3:9001/v1", {"http_proxy": "http://proxy:3128", "NO_PROXY": direct})
    assert bool(route.proxy) != is_direct


def test_netrc_gives_no_password(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("default login me password S3CRET\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    _, server, _ = ask(labels, LISTS, [b"Hm."])
    assert "Authorization" not in server.requests[0].raw.headers


def test_private_ca_is_trusted_by_ssl_cert_file_and_named_without(monkeypatch, tls, tmp_path):
    context, folder = tls

    async def body():
        async with server_of(label, context) as address:
            return await ask_at(f"https://localhost:{address.rpartition(':')[2]}/v1")

    found = asyncio.run(body())
    assert found.name == "certificate" and found.server_at_fault and "SSL_CERT_FILE" in found.detail
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    assert "SSL_CERT_FILE names nothing that is there" in asyncio.run(body()).detail
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    assert asyncio.run(body()) == [1]


def test_certificate_of_another_host_is_said_to_be_that(monkeypatch, tls):
    context, folder = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))

    async def body():
        async with server_of(label, context) as address:
            return await ask_at(f"https://{address}/v1")

    found = asyncio.run(body())
    assert found.name == "certificate" and "another host's" in found.detail and "SSL_CERT_FILE" not in found.detail


def test_server_without_tls_is_said_to_be_that():
    async def body():
        async with fake_server(labels) as server:
            return await ask_at(f"https://{server.address}/v1")

    found = asyncio.run(body())
    assert found.name == "unreachable" and "http://" in found.detail and "SSLContext" not in found.detail


def test_address_without_a_server_is_said_without_the_tls_context():
    found = asyncio.run(ask_at(f"https://127.0.0.1:{free_port()}/v1"))
    assert found.name == "unreachable" and "SSLContext" not in found.detail and "ssl:" not in found.detail


def test_embeddings_go_by_the_proxy_too(monkeypatch):
    async def answer(request):
        texts = (await request.json())["input"]
        rows = [{"index": i, "embedding": [1.0, 0.0]} for i in range(len(texts))]
        return web.json_response({"data": rows})

    async def body():
        async with server_of(answer) as address, proxy_to(address) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.address}")
            config = AnnotationConfig(llm_server_addr=f"http://{HOST}/v1")
            found = await asyncio.get_running_loop().run_in_executor(None, ServerEmbedder(config, "m"), ["a", "b"])
            return found, proxy.asked

    found, asked = asyncio.run(body())
    assert np.array_equal(found, [[1, 0], [1, 0]]) and HOST in asked[0]
