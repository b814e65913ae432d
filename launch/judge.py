"""Serves the rule-based judge: a stand-in for an LLM server, for tests and first runs.

python -m launch.judge --port 9001
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence

from absl import flags

from oni_jax.annotation.judge import JudgeOptions, serve
from oni_jax.envs.base import Language
from oni_jax.envs.registry import find_environment
from oni_jax.host.files import keep_printing
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    return run(argv, define_flags(), options_from_flags)


def run(
    argv: Sequence[str] | None, values: flags.FlagValues, options: Callable[[flags.FlagValues], JudgeOptions]
) -> int:
    """Runs the judge with these flags; `options` reads them."""
    words = sys.argv[1:] if argv is None else list(argv)
    if argv is None:
        keep_printing()
    if any(word.lstrip("-") in ("h", "help") for word in words):
        print(f"python -m launch.judge [--flag value]...\n{__doc__}\n{values.get_help()}")
        return 0
    try:
        rest = values(["judge", *words])[1:]
        if rest:
            raise UserError(f"{rest[0]!r} is not a flag; write --flag value")
        env = EnvConfig(root_env=values.root_env, plugin=",".join(values.plugin))
        asyncio.run(_serve(find_environment(env).language, options(values)))
    except (UserError, flags.Error) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    text = "Task whose captions are judged."
    flags.DEFINE_string("root_env", EnvConfig().root_env, text, flag_values=values)
    flags.DEFINE_multi_string("plugin", [], "Module that registers environments of your own.", flag_values=values)
    flags.DEFINE_string("host", "127.0.0.1", "Address to listen at; 0.0.0.0 for all.", flag_values=values)
    flags.DEFINE_integer("port", 9001, "Port; 0 for a free one.", 0, 65535, flag_values=values)
    flags.DEFINE_float("latency_secs", 0.0, "Seconds before each answer.", 0.0, flag_values=values)
    flags.DEFINE_float("wrong_fraction", 0.0, "Fraction of items answered wrongly.", 0.0, 1.0, flag_values=values)
    flags.DEFINE_integer("wrong_seed", 0, "Which of the items are answered wrongly.", 0, flag_values=values)
    flags.DEFINE_string("log", "", "File that gets a JSON line for each prompt.", flag_values=values)
    return values


def options_from_flags(values: flags.FlagValues) -> JudgeOptions:
    wrong = values.wrong_fraction, values.wrong_seed
    return JudgeOptions(values.host, values.port, values.latency_secs, *wrong, values.log)


async def _serve(language: Language | None, options: JudgeOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def started(port: int) -> None:
        print(f"rule-based judge (a stand-in, not an LLM) at http://{options.host}:{port}/v1", flush=True)

    await serve(language, options, started, stop)


if __name__ == "__main__":
    sys.exit(main())
