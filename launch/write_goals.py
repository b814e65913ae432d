"""Has an LLM name goals for segments, by which bk-goal shapes. Resumes after its last answer.

python -m launch.write_goals --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --segments segments \
        --reward_dir goals
"""

import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import WriteGoals, check_write
from oni_jax.settings.config import Config


def _run(config: WriteGoals, stop: StopRequest) -> int:
    from oni_jax.offline.bk_goal_writer import write_goals

    code = write_goals(config, stop)
    if code == 0:
        given = {"config": "bk_goal", "reward_dir": config.write.reward_dir}
        show(command("train", Config(), **values_of(config.env), **given))
    return code


main = program("write_goals", WriteGoals(), check_write, _run)

if __name__ == "__main__":
    sys.exit(main())
