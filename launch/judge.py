"""Serves the rule-based judge: a stand-in for an LLM server, for tests and first runs.

python -m launch.judge --port 9001
"""

import asyncio
import dataclasses
import signal
import sys

from launch.program import brief_program
from oni_jax.annotation.judge import JudgeOptions, serve
from oni_jax.envs.base import Language
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config, check_values
from oni_jax.settings.fields import setting
from oni_jax.settings.worlds import EnvConfig


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """The judge: whose captions it judges, where it listens, and how it answers."""

    root_env: str = setting(EnvConfig().root_env, "Task whose captions are judged.")
    plugin: str = setting("", "Module that registers environments of your own.", repeated=",")
    host: str = setting("127.0.0.1", "Address to listen at; 0.0.0.0 for all.")
    port: int = setting(9001, "Port; 0 for a free one.", within="[0, 65535]")
    latency_secs: float = setting(0.0, "Seconds before each answer.")
    wrong_fraction: float = setting(0.0, "Fraction of items answered wrongly.", within="[0, 1]")
    wrong_seed: int = setting(0, "Which of the items are answered wrongly.")
    log: str = setting("", "File that gets a JSON line for each prompt.")

    @property
    def options(self) -> JudgeOptions:
        wrong = self.wrong_fraction, self.wrong_seed
        return JudgeOptions(self.host, self.port, self.latency_secs, *wrong, self.log)


def run(config: JudgeConfig) -> int:
    plan = Plan(Config(EnvConfig(root_env=config.root_env, plugin=config.plugin)))
    asyncio.run(_serve(plan.language, config.options))
    return 0


async def _serve(language: Language | None, options: JudgeOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def started(port: int) -> None:
        print(f"rule-based judge (a stand-in, not an LLM) at http://{options.host}:{port}/v1", flush=True)

    await serve(language, options, started, stop)


main = brief_program("judge", JudgeConfig(), check_values, run)

if __name__ == "__main__":
    sys.exit(main())
