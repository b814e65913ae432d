"""Calls the code of a potential on windows of an environment: says what it gives, or why it is refused.

python -m launch.check_potential potential --root_env BabyAI-Text-PickUp-RedBall-S20
"""

import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.bk_config import CheckPotential, check_check
from oni_jax.settings.config import Config


def _run(config: CheckPotential, stop: StopRequest) -> int:
    from oni_jax.offline.bk_checking import check_potential

    code = check_potential(config, stop)
    if code == 0:
        section = config.check
        given = {"config": "bk_code", "reward_dir": section.code, "potential_horizon": section.potential_horizon}
        show(command("train", Config(), **values_of(config.env), **given))
    return code


main = program("check_potential", CheckPotential(), check_check, _run)

if __name__ == "__main__":
    sys.exit(main())
