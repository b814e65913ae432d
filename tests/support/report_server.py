"""A server that answers as those that people reported: a case for each report, on a loopback port.

python -m tests.support.report_server CASE [PORT]     `list` names the cases; PORT is 9001 when left out.
"""

import http.server
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Body = Mapping[str, Any]
Answer = tuple[int, Any, Mapping[str, str]]  # status; JSON, or a text as it is; headers

GOOD = "<knowledge>k</knowledge><analysis>a</analysis><label>FOO</label>"
USAGE = {"prompt_tokens": 300, "completion_tokens": 20}
LATENCY_SECS = 0.02


def chat(content: Any = GOOD, finish: str = "stop", **more: Any) -> Answer:
    """A message; `more` goes into it, or, `logprobs`, beside it."""
    beside = {"logprobs": more.pop("logprobs")} if "logprobs" in more else {}
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": message, "text": content, "finish_reason": finish, **beside}
    return 200, {"object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE}, {}


def refuse(message: str, status: int = 400, **more: Any) -> Answer:
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}, {}


def budget(body: Body) -> int:
    return body.get("max_completion_tokens", body.get("max_tokens", 1 << 30))


def roles(body: Body) -> list[str]:
    return [turn["role"] for turn in body.get("messages", [])]


def without(name: str, words: str, status: int = 400) -> Callable[[Body], Answer]:
    """Answers once a field is left out."""
    return lambda body: refuse(words, status) if name in body else chat()


def gpt5(body: Body) -> Answer:
    for name, words in {
        "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        "temperature": "Unsupported value: 'temperature' does not support 0.1 with this model.",
        "stop": "Unsupported parameter: 'stop' is not supported with this model.",
        "logprobs": "Unsupported parameter: 'logprobs' is not supported with this model.",
        "top_logprobs": "Unsupported parameter: 'top_logprobs' is not supported with this model.",
    }.items():
        if name in body:
            return refuse(words)
    if budget(body) < 64:
        return refuse("Could not finish the message because max_tokens or model output limit was reached.")
    return chat("FOO")


def filtered(body: Body) -> Answer:
    prompt = " ".join(str(turn["content"]) for turn in body.get("messages", [])) or str(body.get("prompt"))
    if "kill" not in prompt.rsplit("<message>", 1)[-1]:
        return chat()
    words = "The response was filtered due to the prompt triggering the content management policy."
    return refuse(words, code="content_filter", innererror={"code": "ResponsibleAIPolicyViolation"})


EVENTS = 'data: {"choices":[{"delta":{"content":"<label>FOO</label>"}}]}\n\ndata: [DONE]\n\n'


class Case:
    """State of a server that counts its requests."""

    def __init__(self) -> None:
        self.num_in_flight = self.num_served = 0


CASES: dict[str, Callable[[Body, Case], Answer]] = {
    "good": lambda b, s: chat(),
    # a turn that the model made up
    "run_on": lambda b, s: chat(
        f'{GOOD}assistant\n\nThe next message is "You are hungry." <label>BAR</label>', "length"
    ),
    "run_on_user": lambda b, s: chat("FOO\n\nUser: You are hungry.\n\nAssistant: BAR"),
    "run_on_tokens": lambda b, s: chat(
        f"{GOOD}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n<label>BAR</label>"
    ),
    "repeated_prompt": lambda b, s: chat(f"{GOOD}\n<message>\nYou die.\n</message>\n<label>BAR</label>", "length"),
    # reasoning
    "magistral": lambda b, s: chat("[THINK]FOO would be helpful.[/THINK]BAR? No: <label>FOO</label>"),
    "thinking_tag": lambda b, s: chat("<thinking>FOO means helpful, BAR means not helpful."),
    "minimax": lambda b, s: chat("<mm:think>BAR at first</mm:think><label>FOO</label>"),
    "sky": lambda b, s: chat(f"<|begin_of_thought|><label>BAR</label><|end_of_thought|>{GOOD}"),
    "template_opened": lambda b, s: chat("It may be <label>BAR</label>.\n</think>\n\n<label>FOO</label>"),
    "harmony": lambda b, s: chat(
        "<|channel|>analysis<|message|>FOO, or BAR?<|end|>"
        "<|start|>assistant<|channel|>final<|message|><label>BAR</label>"
    ),
    "harmony_bare": lambda b, s: chat("analysisFOO or BAR?assistantfinal<label>BAR</label>"),
    "answer_in_reasoning": lambda b, s: chat(None, reasoning=GOOD),
    "no_content": lambda b, s: (200, {"choices": [{"index": 0, "message": {"role": "assistant"}}]}, {}),
    "think_budget": lambda b, s: chat("", "length", reasoning_content="FOO, or") if budget(b) < 2000 else chat(),
    # fields
    "kimi": lambda b, s: (
        refuse("invalid temperature: only 1 is allowed for this model") if b.get("temperature", 1) != 1 else chat()
    ),
    "bedrock": lambda b, s: without("temperature", "This model doesn't support the temperature field.")(b),
    "late_name": lambda b, s: without("temperature", "x" * 200 + " provider error " + "y" * 200 + " bad temperature")(
        b
    ),
    "no_stop": lambda b, s: without(
        "stop", '[{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]', 422
    )(b),
    "gpt5": lambda b, s: gpt5(b),
    "gemma": lambda b, s: refuse("System role not supported") if "system" in roles(b) else chat(),
    "mistral_template": lambda b, s: (
        refuse("Conversation roles must alternate user/assistant/user/assistant/...", 500)
        if "system" in roles(b)
        else chat()
    ),
    "dashscope": lambda b, s: (
        chat() if b.get("enable_thinking") is False else refuse("parameter.enable_thinking must be set to false")
    ),
    # probabilities and constraints
    "no_logprobs": lambda b, s: chat("FOO"),
    "empty_logprobs": lambda b, s: chat("FOO", logprobs={"content": []}),
    "lowest_logprobs": lambda b, s: chat("FOO", logprobs={"tokens": ["FOO"], "token_logprobs": [-9999.0]}),
    "unforced": lambda b, s: chat("Sure! The message says", "length"),
    # faults that pass
    "error_in_200": lambda b, s: (200, {"error": {"code": 429, "message": "Rate limit exceeded"}}, {}),
    "azure_filter": lambda b, s: filtered(b),
    "quota": lambda b, s: refuse("You exceeded your current quota.", 429, code="insufficient_quota"),
    "balance": lambda b, s: chat() if s.num_served < 20 else refuse("Insufficient Balance", 402),
    "no_balance": lambda b, s: refuse("Insufficient Balance", 402),
    "context_all": lambda b, s: refuse("Context size has been exceeded.", 500) if s.num_in_flight > 1 else chat(),
    "sse": lambda b, s: (200, EVENTS, {"Content-Type": "text/event-stream"}),
    "blank_lines": lambda b, s: (200, "\n\n\n" + json.dumps(chat()[1]), {}),
    "html_502": lambda b, s: (502, "<!DOCTYPE html><title>502</title>", {"Content-Type": "text/html"}),
}


def make_server(case: str, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Returns a server that listens, to be served."""
    state, lock = Case(), threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply(200, {"object": "list", "data": [{"id": "m", "object": "model"}]}, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state.num_in_flight += 1
            try:
                time.sleep(LATENCY_SECS)
                status, data, headers = CASES[case](body, state)
                print(self.path, status, sorted(body), flush=True)
                self.reply(status, data, headers)
            finally:
                with lock:
                    state.num_in_flight -= 1
                    state.num_served += 1

        def reply(self, status: int, data: Any, headers: Mapping[str, str]) -> None:
            raw = (data if isinstance(data, str) else json.dumps(data)).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(raw))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    if sys.argv[1:2] in ([], ["list"]):
        sys.exit(" ".join(CASES))
    make_server(sys.argv[1], int((sys.argv[2:] or ["9001"])[0])).serve_forever()
