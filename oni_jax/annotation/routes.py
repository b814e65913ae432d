"""Routes to a server: proxies that the environment names, trusted certificates, and the errors where either fails."""

import dataclasses
import functools
import ipaddress
import os
import re
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any

import aiohttp

from oni_jax.annotation.failures import RequestError
from oni_jax.settings.fields import UserError

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclasses.dataclass(frozen=True)
class Route:
    """The route to a URL: directly, or by a proxy."""

    url: str
    proxy: str = ""  # URL of the proxy, which may hold a password; empty: none
    variable: str = ""  # variable of the environment that names the proxy

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""

    @property
    def proxy_words(self) -> str:
        """The proxy for people: without its password."""
        parts = urllib.parse.urlsplit(self.proxy)
        return f"the proxy of {self.variable} ({parts.hostname}:{parts.port or 80})"

    def options(self) -> dict[str, Any]:
        """Arguments of a request of aiohttp's."""
        options: dict[str, Any] = {"proxy": self.proxy} if self.proxy else {}
        certificates = (os.environ.get(name, "") for name in _CERTIFICATES)
        return options | ({"ssl": _tls_context(*certificates)} if self.url.startswith("https:") else {})

    def failure(self, error: Exception) -> RequestError | None:
        """Returns the cause of a failed connection: proxy, certificate, or a server away; None: it was connected."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return RequestError("certificate", self._certificate_words(error), server_at_fault=True)
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            cause = "speaks no TLS at this port, or breaks it off: is it http://, or another port?"
            words = f"{self.host} {cause} ({_words(error)})"
            return RequestError("unreachable", words, server_at_fault=True)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self.refused_by_proxy(error.status, error.message)
        if not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return None
        if not self.proxy:
            return RequestError("unreachable", _words(error), server_at_fault=True)
        words = f"{self.proxy_words} does not answer: mend the variable, or list {self.host} in NO_PROXY"
        return RequestError("proxy", words, server_at_fault=True)

    def refused_by_proxy(self, status: int, words: str) -> RequestError:
        advice = (
            "put user:password@ before its host" if status == 407 else f"list {self.host} in NO_PROXY to pass it by"
        )
        return RequestError(
            "proxy", f"{self.proxy_words} answers {status} {words}: {advice}", status, server_at_fault=True
        )

    def _certificate_words(self, error: aiohttp.ClientConnectorCertificateError) -> str:
        cause = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        if "mismatch" in cause.lower():
            return f"the certificate of {self.host} is another host's ({cause}): name the host that it is for"
        named = [f"{name} is {value}" for name in _CERTIFICATES if (value := os.environ.get(name))]
        missing = [name for name in _CERTIFICATES if not os.path.exists(os.environ.get(name) or "/")]
        given = f"; {' and '.join(missing)} names nothing that is there" if missing else f"; {' and '.join(named)}"
        return (
            f"the certificate of {self.host} is not trusted ({cause}): where a CA of your own, or a proxy that signs "
            f"again, has signed it, name the CA's file with SSL_CERT_FILE{given if named else ''}"
        )


def find_route(url: str, environment: Mapping[str, str] = os.environ) -> Route:
    """Returns the route to a URL, by HTTPS_PROXY or HTTP_PROXY, ALL_PROXY and NO_PROXY; in small letters, too.

    This machine is never reached by a proxy.

    Raises:
        UserError: the variable names no proxy that can be used. Its value, which may hold a password, is not shown.
    """
    parts = urllib.parse.urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    names = [each for name in (f"{parts.scheme}_proxy", "all_proxy") for each in (name, name.upper())]
    variable = next((name for name in names if environment.get(name, "").strip()), "")
    direct = ",".join(environment.get(name, "") for name in ("no_proxy", "NO_PROXY"))
    if not variable or _is_here(host) or any(_matches(host, port, each) for each in re.split(r"[\s,]+", direct)):
        return Route(url)
    proxy = environment[variable].strip()
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        found = urllib.parse.urlsplit(proxy)
        good = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch(r"[!-~]+", proxy):
        raise UserError(
            f"{variable}: must be a proxy's http://host:port (SOCKS is not supported); mend it, or list {host} in "
            "NO_PROXY"
        )
    return Route(url, proxy, variable)


def _words(error: Exception) -> str:
    """Returns an error's text without the TLS context, whose address in memory says nothing."""
    return re.sub(r" ssl:(<[^>]*>|\w+)", "", str(error))


def _is_here(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or bool(address and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _matches(host: str, port: int, entry: str) -> bool:
    """Returns whether an entry of NO_PROXY covers a host: *, a name with its subdomains, an address, or a network."""
    name, _, entry_port = entry.lower().rpartition(":") if re.search(r"[^:]:\d+$", entry) else (entry.lower(), "", "")
    name = name.strip("[]").removeprefix("*.").removeprefix(".")
    if not name or (entry_port and int(entry_port) != port):
        return False
    if address := _address(host):
        try:
            return name == "*" or address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
    return name == "*" or host == name or host.endswith(f".{name}")


@functools.lru_cache(4)
def _tls_context(*_: str) -> ssl.SSLContext:
    """Makes the context once for each value of SSL_CERT_FILE and SSL_CERT_DIR, which it reads."""
    return ssl.create_default_context()
