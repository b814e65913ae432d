"""Addresses that messages and the key may go to, and places where the key may not be seen."""

import asyncio
import dataclasses
import pathlib
import time

import pytest

from launch import annotate_pairs, train
from oni_jax.annotation.address import api_key_header, endpoint_urls, server_url
from oni_jax.annotation.client import Client, RequestError
from oni_jax.annotation.health import check_server
from oni_jax.annotation.judge import JudgeOptions
from oni_jax.annotation.label_store import LabelStore
from oni_jax.host.runtime import ChildError
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.fields import UserError
from tests.annotation.fake_server import choices, fake_server, labels, refusal
from tests.annotation.test_client import LISTS, ask
from tests.support.asking import load_prompt, queries, start_judge, start_service
from tests.support.judge_faults import Faults
from tests.support.processes import RETRIEVAL, SMALL, Launched, rows

KEY = "sk-S3CRET-of-a-test"
KEYED = dataclasses.replace(LISTS, llm_api_key="env:KEY_OF_A_TEST")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("KEY_OF_A_TEST", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize(
    "address, url",
    [
        ("localhost", "http://localhost:9001/v1"),
        ("gpu-7:8000", "http://gpu-7:8000/v1"),
        ("gpu_7", "http://gpu_7:9001/v1"),
        ("http://gpu-7", "http://gpu-7/v1"),
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
        ("HTTP://gpu-7:80/llm", "http://gpu-7:80/llm"),
        ("::1", "http://[::1]:9001/v1"),
        ("[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_address(address, url):
    assert server_url(address) == url


@pytest.mark.parametrize(
    "address",
    [
        "ftp://host",
        "file:///etc/passwd",
        "unix:///run/llm",
        "gopher://h",
        "javascript://h/%0a",
        "host:port",
        "host:99999",
    ]
    + [
        "host:",
        "http://",
        "a b",
        "h\nx",
        "h\x00",
        "http://good\\.evil",
        "http://goo\u0501d",
        "http://h/a b",
        "http://h/\x7f",
        "http://h/\\..",
        "http://[::1",
        "http//good:9001",
        "",
        "/",
    ],
)
def test_bad_address(address):
    with pytest.raises(UserError, match="llm_server_addr") as error:
        server_url(address)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "address",
    ["http://user:S3CRET@host", "user:S3CRET@host:9", "http://u:S3/CRET@h", "ftp://u:S3CRET@h", "http://S3CRET@h:port"]
    + ["https://h/v1?key=S3CRET", "h?S3CRET", "http://h#S3CRET", "ftp://h?S3CRET", "http://u:S3CRET@[::1"],
)
def test_an_address_with_a_secret_is_not_repeated(address):
    with pytest.raises(UserError, match="no password, query or fragment") as error:
        server_url(address)
    assert "S3" not in str(error.value) and "CRET" not in str(error.value)


# ---- where the key comes from


def test_sources_of_the_key(tmp_path, monkeypatch):
    assert api_key_header(LISTS) == {}
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    assert api_key_header(LISTS) == {"Authorization": "Bearer of-openai"}
    assert api_key_header(KEYED) == {"Authorization": f"Bearer {KEY}"}
    (tmp_path / "key").write_text("  from-file \nmore\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (tmp_path / "key", "~/key"):
        config = dataclasses.replace(LISTS, llm_api_key=f"file:{path}")
        assert api_key_header(config) == {"Authorization": "Bearer from-file"}


@pytest.mark.parametrize(
    "place, content, words",
    [
        ("S3CRET", "", "env:NAME or file:PATH"),
        ("env:", "", "env:NAME or file:PATH"),
        ("env:S3\nCRET", "", "env:NAME or file:PATH"),
        ("env:S3CRET", "", "no key"),
        ("file:S3CRET", "", "no key"),
        ("file:{}", "\nS3CRET", "no key"),
        ("file:{}", "S3CRET\xe9", "printable ASCII"),
        ("file:{}", "S3CRET\x01", "printable ASCII"),
        ("file:{}", "S3CRET \x00", "printable ASCII"),
        ("file:/", "", "no key"),
    ],
)
def test_bad_keys_are_told_and_not_repeated(tmp_path, place, content, words):
    path = tmp_path / "key"
    path.write_text(content)
    config = AnnotationConfig(llm_server_addr="host", llm_api_key=place.format(path))
    for check in (api_key_header, check_server, lambda config: Client(config, load_prompt(config))):
        with pytest.raises(UserError, match="--llm_api_key") as error:
            check(config)
        text = str(error.value)
        assert words in text and "S3" not in text and text.isprintable()


def test_an_endless_key_file():
    with pytest.raises(UserError):
        api_key_header(dataclasses.replace(LISTS, llm_api_key="file:/dev/zero"))


def test_a_program_given_a_key_says_one_line_without_it(capsys, tmp_path):
    words = ["--llm_api_key", "S3CRET", f"--train_dir={tmp_path}", f"--directory={tmp_path}"]
    assert train.main([*words[:3], "--llm_reward_type=online_cls", "--llm_reward_coeff=0.1"]) == 2
    assert annotate_pairs.main([*words[:2], words[3]]) == 2
    output = capsys.readouterr()
    assert output.err.count("env:NAME or file:PATH") == output.err.count("\n") == 2
    assert "S3CRET" not in output.err + output.out and not list(tmp_path.iterdir())


# ---- where it goes


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status):
    """Neither messages nor the key reach another address, and it is named for the user to decide."""
    reached = []

    async def body():
        listener = await asyncio.start_server(lambda _, writer: reached.append(writer.close()), "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            for location in (f"http://127.0.0.1:{port}/v1/completions", f"//127.0.0.1:{port}/", "/v1/elsewhere"):
                headers = {"Location": location, "Refresh": f"0; url={location}", "Alt-Svc": f'h2="127.0.0.1:{port}"'}
                async with fake_server(lambda request, headers=headers: refusal(status, **headers)) as server:
                    config = dataclasses.replace(KEYED, llm_server_addr=server.address)
                    async with Client(config, load_prompt(config)) as client:
                        with pytest.raises(RequestError) as error:
                            await client.ask([(b"Hm.",)])
                        assert error.value.name == "redirected" and location in error.value.detail
                        assert len(server.requests) == 1
                        assert server.requests[0].raw.headers["Authorization"] == f"Bearer {KEY}"

    asyncio.run(body())
    assert not reached


# ---- where it is not seen


@pytest.mark.parametrize(
    "words",
    [KEY, f"your key is {KEY}.", " " * 1990 + KEY, "x" * 295 + KEY, f"{KEY}{KEY}", f"\n{KEY}\n", f"a\x1b[2J{KEY}"],
)
@pytest.mark.parametrize("status", [200, 302, 401, 404, 500])
def test_a_server_that_repeats_the_key(words, status):
    """It is left out of what is said of the failure, also where that is cut off."""
    error, _, _ = ask(
        lambda request: refusal(status, words, Location=words.replace("\n", "").replace("\x1b", "")), KEYED
    )
    assert error.name != "unexpected" and error.detail.isprintable() and len(error.detail) < 500
    assert "S3" not in error.detail and "sk-" not in error.detail


class BrokenStore(LabelStore):
    def put_many(self, model, digest, answered):
        raise ZeroDivisionError("a mistake")


def test_the_key_is_in_no_process_list_no_state_and_no_traceback(tmp_path):
    """The service's process shows no key, in good times and when it fails."""
    store = BrokenStore(str(tmp_path / "labels.sqlite"))

    async def body():
        answers = iter([refusal(500, KEY), *[refusal(401, KEY) for _ in range(3)]])

        def script(request):
            return next(answers, None) or labels(request)

        async with fake_server(script) as server:
            config = dataclasses.replace(KEYED, llm_server_addr=server.address)
            service = start_service(config, store)
            said = []
            try:
                service.submit(queries([(b"You kill the newt!",)]))
                deadline = time.monotonic() + 30
                with pytest.raises(ChildError, match="ZeroDivisionError: a mistake") as error:
                    while time.monotonic() < deadline:
                        service.poll()
                        said.append(str(service.stats()))
                        for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                            said.append(_read(file))
                        await asyncio.sleep(0.05)
                said += [str(error.value), repr(config), str(config)]
            finally:
                service.close(0.0)
            assert server.requests[0].raw.headers["Authorization"] == f"Bearer {KEY}"
            assert any("wrong_key" in text for text in said) and not any(KEY in text for text in said)

    asyncio.run(body())


@pytest.mark.slow
def test_no_file_of_a_run_holds_the_key(tmp_path):
    """Nor its output, nor any of its processes' command lines."""
    judge = start_judge(JudgeOptions(trouble=Faults(0.2, ("wrong_key", "http_500", "redirect"), seed=1)))
    words = [*SMALL, *RETRIEVAL, f"--train_dir={tmp_path}", "--experiment=run", "--train_for_env_steps=20000"]
    run = Launched("launch.train", *words, f"--llm_server_addr={judge.address}", "--llm_api_key=env:KEY_OF_A_TEST")
    run.wait_for(lambda: any(row.get("labels_held") for row in rows(tmp_path / "run")))
    lines = [_read(pathlib.Path(f"/proc/{process.pid}/cmdline")) for process in run.descendants()]
    output = run.finish()
    judge.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run.process.returncode == 0 and len(lines) >= 3 and len(files) >= 5
    assert KEY not in output and not any(KEY in line for line in lines)
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


# ---- Azure OpenAI


@pytest.mark.parametrize(
    "address, root",
    [
        ("https://name.openai.azure.com", "https://name.openai.azure.com/openai"),
        ("https://name.openai.azure.com/openai/", "https://name.openai.azure.com/openai"),
        ("gateway:8000", "http://gateway:8000/openai"),
    ],
)
def test_azure_s_addresses(address, root):
    config = AnnotationConfig(llm_server_addr=address, llm_model="my gpt/4", llm_api_version="2024-10-21")
    deployment = f"{root}/deployments/my%20gpt%2F4"
    assert endpoint_urls(config, "chat/completions") == [f"{deployment}/chat/completions?api-version=2024-10-21"]
    assert endpoint_urls(config, "models") == [f"{root}/models?api-version=2024-10-21"]


def test_azure_s_requests():
    azure = dataclasses.replace(KEYED, llm_api="chat", llm_api_version="2024-10-21", llm_model="gpt-4")

    def answer(request):
        return choices([{"index": 0, "message": {"role": "assistant", "content": "<label>FOO</label>"}}])

    async def body():
        async with fake_server(answer) as server:
            config = dataclasses.replace(azure, llm_server_addr=server.address)
            async with Client(config, load_prompt(config)) as client:
                (reply,) = await client.ask([(b"You kill the newt!",)])
                assert client.without_key(f"a {KEY}") == "a ***"
        (request,) = server.requests
        assert reply.text == "<label>FOO</label>"
        assert request.raw.headers["api-key"] == KEY and "Authorization" not in request.raw.headers
        assert request.raw.path_qs == "/openai/deployments/gpt-4/chat/completions?api-version=2024-10-21"

    asyncio.run(body())


def test_a_bad_version_is_refused():
    with pytest.raises(UserError, match="--llm_api_version '2024&x': must be a version"):
        check_server(AnnotationConfig(llm_server_addr="host", llm_api_version="2024&x"))
