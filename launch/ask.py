"""Tries a prompt before a training: shows what an LLM answers to captions under the settings of a run.

python -m launch.ask --config score_retrieval --message "You kill the newt!" --message "It is dark."
"""

import contextlib
import sys

from launch import flags
from launch.next_commands import command, show
from launch.program import program
from oni_jax.evaluation.asking.config import Ask, check_ask
from oni_jax.evaluation.asking.program import ask
from oni_jax.host.runtime import StopRequest
from oni_jax.settings.config import Config, listed
from oni_jax.settings.fields import UserError


def _run(config: Ask, stop: StopRequest) -> int:
    code = ask(config, stop)
    if code == 0 and not stop and not config.ask.compare_models:
        with contextlib.suppress(UserError):  # asking may lack what training needs, such as a coefficient
            flags.check(config)
            given = {field.name: value for field, value in listed(config) if not field.metadata["secret"]}
            show(command("train", Config(), **given))
    return code


main = program("ask", Ask(), check_ask, _run)

if __name__ == "__main__":
    sys.exit(main())
