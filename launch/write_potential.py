"""Has an LLM write a potential as code, shown on segments and mended in rounds. Resumes after its last answer.

python -m launch.write_potential --root_env BabyAI-Text-GoToLocal-Pretraining-S20 --segments segments \
        --reward_dir potential
"""

import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import CheckPotential, WritePotential, check_write


def _run(config: WritePotential, stop: StopRequest) -> int:
    from oni_jax.offline.bk_writer import write_potential

    code = write_potential(config, stop)
    if code == 0:
        section = config.write
        given = {"code": section.reward_dir, "segments": section.segments, "potential_horizon": section.segment_length}
        show(command("check_potential", CheckPotential(), **values_of(config.env), **given))
    return code


main = program("write_potential", WritePotential(), check_write, _run)

if __name__ == "__main__":
    sys.exit(main())
