"""Opens a page in headless Chromium and tells what it asked for, what it complained of, and what it shows."""

import asyncio
import json
import shutil
import tempfile
from typing import Any, NamedTuple

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
OPTIONS += ("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0")
LIMIT_SECS = 120
# Waits until everything is decoded, or can't be.
LOOK = """Promise.all([...document.images].map(x => x.decode().catch(() => 0))).then(() => ({
    title: document.title, text: document.body.innerText, width: document.documentElement.scrollWidth,
    elements: [...new Set([...document.querySelectorAll("*")].map(x => x.localName))],
    pictures: [...document.images].map(x => [x.complete ? x.naturalWidth : 0, x.naturalHeight])}))"""


class Seen(NamedTuple):
    requests: list[str]  # requests of anything but the page itself and what is inside it
    complaints: list[str]
    title: str
    text: str  # as a person reads it
    width: int  # width of the whole page, pixels; the window's is 800
    elements: list[str]
    pictures: list[tuple[int, int]]  # (width, height); 0: can't be decoded


def find_browser() -> str:
    """Its path. Skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    return found


def open_page(path: str) -> Seen:
    return asyncio.run(asyncio.wait_for(_open(find_browser(), f"file://{path}"), LIMIT_SECS))


async def _open(browser: str, url: str) -> Seen:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, *OPTIONS, "--window-size=800,600", f"--user-data-dir={profile}", "about:blank"]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            assert process.stderr
            address = ""
            while not address.startswith("ws://"):
                line = (await process.stderr.readline()).decode()
                assert line, "Chromium ended at its start"
                address = line.partition("DevTools listening on ")[2].strip()
            async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
                return await _look(socket, url)
        finally:
            process.kill()
            await process.wait()


async def _look(socket: aiohttp.ClientWebSocketResponse, url: str) -> Seen:
    events: list[dict[str, Any]] = []
    numbers = iter(range(1, 100))

    async def until(done) -> dict[str, Any]:
        while True:
            message = json.loads((await socket.receive()).data)
            events.append(message)
            if done(message):
                return message

    async def call(method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        number = next(numbers)
        await socket.send_json(
            {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        )
        answer = await until(lambda message: message.get("id") == number)
        return answer["result"]

    target = (await call("Target.createTarget", url="about:blank"))["targetId"]
    session = (await call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
    for part in ("Network", "Log", "Runtime", "Page"):
        await call(f"{part}.enable", session)
    await call("Page.navigate", session, url=url)
    await until(lambda message: message.get("method") == "Page.loadEventFired")
    answer = await call("Runtime.evaluate", session, expression=LOOK, awaitPromise=True, returnByValue=True)
    seen = answer["result"]["value"]
    requests = [
        event["params"]["request"]["url"] for event in events if event.get("method") == "Network.requestWillBeSent"
    ]
    methods = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    return Seen(
        requests=[x for x in requests if x != url and not x.startswith("data:")],
        complaints=[json.dumps(event["params"]) for event in events if event.get("method") in methods],
        title=seen["title"],
        text=seen["text"],
        width=seen["width"],
        elements=seen["elements"],
        pictures=[(width, height) for width, height in seen["pictures"]],
    )
