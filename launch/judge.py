"""Serves the rule-based judge: a stand-in for an LLM server, for tests and first runs."""

import asyncio
import signal
import sys
from collections.abc import Sequence

from absl import flags

from oni_jax.annotation.judge import JudgeOptions, serve
from oni_jax.annotation.judge_faults import FAULTS
from oni_jax.config import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None). Returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    values = define_flags()
    if any(word.lstrip("-") in ("h", "help") for word in words):
        print(f"python -m launch.judge [--flag value]...\n{__doc__}\n{values.get_help()}")
        return 0
    try:
        rest = values(["judge", *words])[1:]
        if rest:
            raise UserError(f"{rest[0]!r} is not a flag; write --flag value")
        asyncio.run(_serve(options_from_flags(values)))
    except (UserError, flags.Error) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("host", "127.0.0.1", "Address to listen at; 0.0.0.0 for all.", flag_values=values)
    flags.DEFINE_integer("port", 9001, "Port; 0 for a free one.", 0, 65535, flag_values=values)
    flags.DEFINE_float("latency_secs", 0.0, "Seconds before each answer.", 0.0, flag_values=values)
    flags.DEFINE_float("fault_rate", 0.0, "Share of requests with a fault.", 0.0, 1.0, flag_values=values)
    text = "Kind of fault, given once for each; all when none is."
    flags.DEFINE_multi_enum("fault", [], list(FAULTS), text, flag_values=values)
    flags.DEFINE_integer("seed", 0, "Seed of the faults.", flag_values=values)
    flags.DEFINE_string("log", "", "File that gets a JSON line for each prompt.", flag_values=values)
    return values


def options_from_flags(values: flags.FlagValues) -> JudgeOptions:
    return JudgeOptions(
        host=values.host,
        port=values.port,
        latency_secs=values.latency_secs,
        fault_rate=values.fault_rate,
        faults=tuple(values.fault),
        seed=values.seed,
        log_path=values.log,
    )


async def _serve(options: JudgeOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def started(port: int) -> None:
        print(f"rule-based judge (a stand-in, not an LLM) at http://{options.host}:{port}/v1", flush=True)

    await serve(options, started, stop)


if __name__ == "__main__":
    sys.exit(main())
