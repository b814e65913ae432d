"""Several servers of one model: requests are spread over them, and a dead one is left out and tried again."""

import asyncio
import contextlib
import dataclasses
import time

import pytest

from launch import flags
from oni_jax.annotation import pacing
from oni_jax.annotation.address import server_urls
from oni_jax.annotation.client import Client
from oni_jax.annotation.failures import RequestError
from oni_jax.annotation.health import check_server
from oni_jax.annotation.labeller import Labeller
from oni_jax.settings.config import check_config
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import fake_server, hang, labels, refusal
from tests.annotation.test_client import LISTS
from tests.annotation.test_labeller import CONFIG, all_messages, quick_pauses, store
from tests.support.asking import load_prompt
from tests.support.faults import free_port

__all__ = ["quick_pauses", "store"]  # fixtures
MESSAGE = [(b"Hm.",)]


@contextlib.asynccontextmanager
async def servers(*scripts, sign="+", dead=()):
    """Servers with these scripts, and settings that name them, dead ones first."""
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(fake_server(script)) for script in scripts]
        yield found, dataclasses.replace(LISTS, llm_server_addr=sign.join([*dead, *(x.address for x in found)]))


async def slowly(request):
    await asyncio.sleep(0.1)
    return labels(request)


@pytest.mark.parametrize("sign", ["+", ","])
def test_requests_are_spread_by_what_is_in_flight(sign):
    async def body():
        async with servers(slowly, labels, sign=sign) as (found, config):
            async with Client(config, load_prompt(config)) as client:
                await asyncio.gather(*(client.ask(MESSAGE) for _ in range(8)))
                assert [len(server.requests) for server in found] == [4, 4]
                slow = asyncio.gather(*(client.ask(MESSAGE) for _ in range(2)))
                await asyncio.sleep(0.05)
                for _ in range(6):  # while the first works on one
                    await client.ask(MESSAGE)
                await slow
            assert [len(server.requests) for server in found] == [5, 11]

    asyncio.run(body())


@pytest.mark.parametrize("fault", ["unreachable", "http_503", "http_429", "wrong_key", "http_404"])
def test_dead_server_is_left_out_and_tried_again(fault, monkeypatch):
    monkeypatch.setattr(pacing, "MIN_BACKOFF_SECS", 0.2)
    monkeypatch.setattr(pacing, "MAX_BACKOFF_SECS", 0.2)
    statuses = {"http_503": 503, "http_429": 429, "wrong_key": 401, "http_404": 404}
    mended = []

    def script(request):
        return labels(request) if mended else refusal(statuses[fault])

    async def body():
        dead = [f"127.0.0.1:{free_port()}"] if fault == "unreachable" else []
        scripts = [labels] if dead else [script, labels]
        async with servers(*scripts, dead=dead) as (found, config):
            async with Client(config, load_prompt(config)) as client:
                for _ in range(20):
                    await client.ask(MESSAGE)
                assert (client.servers.num_answering, len(client.servers)) == (1, 2) and fault in client.servers.problem
                assert len(found[-1].requests) == 20
                if not dead:
                    assert len(found[0].requests) < 4
                    mended.append(True)
                    await asyncio.sleep(0.25)
                    await client.ask(MESSAGE)
                    assert client.servers.num_answering == 2 and not client.servers.problem

    asyncio.run(body())


def test_server_that_hangs_gets_no_more_than_single_requests():
    async def body():
        async with servers(hang, labels) as (found, config):
            config = dataclasses.replace(config, llm_timeout_secs=0.2)
            async with Client(config, load_prompt(config)) as client:
                with contextlib.suppress(RequestError):
                    await client.ask(MESSAGE)  # it meets the first
                start = time.monotonic()
                await asyncio.gather(*(client.ask(MESSAGE) for _ in range(10)), return_exceptions=True)
                assert time.monotonic() - start < 1.0 and len(found[0].requests) <= 2

    asyncio.run(body())


def test_no_server_answers_and_the_last_error_is_raised():
    async def body():
        dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        config = dataclasses.replace(LISTS, llm_server_addr="+".join(dead))
        async with Client(config, load_prompt(config)) as client:
            for _ in range(2):
                with pytest.raises(RequestError) as error:
                    await client.ask(MESSAGE)
                assert error.value.name == "unreachable" and error.value.server_at_fault
            assert client.servers.num_answering == 0

    asyncio.run(body())


def test_run_with_a_dead_server_labels_everything_and_says_how_many_answer(store):
    async def body():
        async with servers(labels, dead=[f"127.0.0.1:{free_port()}"]) as (_, config):
            config = dataclasses.replace(CONFIG, llm_server_addr=config.llm_server_addr)
            prompt, found = load_prompt(config), []
            async with Client(config, prompt) as client:
                labeller = Labeller(config, client, store, prompt, found.extend, lambda items: None)
                labeller.submit([(message,) for message in all_messages(40)])
                running = asyncio.ensure_future(labeller.run())
                async with asyncio.timeout(8):
                    while labeller.stats()["labels_held"] != 40:
                        await asyncio.sleep(0.01)
                running.cancel()
                stats = labeller.stats()
        assert stats["state"] == "1 of 2 servers answer" and "unreachable" in str(stats["problem"])
        assert (stats["servers"], stats["servers_answering"]) == (2, 1)
        assert stats["put_aside"] == stats["dropped"] == stats["requests_failed"] == 0

    asyncio.run(body())


def test_check_at_the_start_names_each_server_that_is_away(capsys):
    dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]

    async def body(required):
        async with servers(labels, dead=dead[:1]) as (_, config):
            config = dataclasses.replace(config, llm_required=required)
            await asyncio.get_running_loop().run_in_executor(None, check_server, config)

    for required in (False, True):
        asyncio.run(body(required))
        output = capsys.readouterr().out
        assert output.count("\n") == 1 and dead[0] in output and "tried again" in output
    nobody = dataclasses.replace(LISTS, llm_server_addr="+".join(dead), llm_required=True)
    with pytest.raises(UserError, match="no LLM server answers"):
        check_server(nobody)


@pytest.mark.parametrize("address", ["a+b:8000", "a,b:8000", " a , b:8000 "])
def test_servers_of_one_reward_are_joined_by_either_sign(address):
    assert server_urls(address) == ["http://a:9001/v1", "http://b:8000/v1"]


@pytest.mark.parametrize(
    "address, words",
    [("a+b,c", "one of the two"), ("a,a:9001", "twice"), ("a+", "must be host"), ("a,,b", "must be host")]
    + [("a+u:S3CRET@b", "no password")],
)
def test_list_that_is_none_is_refused_in_a_line(address, words):
    with pytest.raises(UserError, match="--llm_server_addr") as error:
        server_urls(address)
    assert words in str(error.value) and "S3CRET" not in str(error.value)


def test_commas_part_the_servers_of_rewards_and_plus_joins_those_of_one():
    types = "--llm_reward_type=online_cls,online_motif"
    several = flags.parse([types, "--llm_server_addr=a+b,c"])
    assert [term.annotation.llm_server_addr for term in several.terms()] == ["a+b", "c"]
    with pytest.raises(UserError, match=r"3 values for 2 rewards.*\+ joins several servers of one reward"):
        flags.parse([types, "--llm_server_addr=a,b,c"])
    confused = dataclasses.replace(several, annotation=dataclasses.replace(several.annotation, llm_server_addr="a,b"))
    with pytest.raises(UserError, match=r"join those of one reward by \+"):
        check_config(confused)
    alone = flags.parse(["--llm_reward_type=online_cls", "--llm_server_addr=a,b"])
    assert alone.annotation.llm_server_addr == "a,b"
