"""Evaluates a trained or a random policy, and reports returns and other measures with error bars.

python -m launch.evaluate --experiment score_retrieval --compare random
"""

import os
import sys
from collections.abc import Sequence

from launch.program import run_program
from oni_jax.evaluation.config import EvaluationConfig, check_evaluate
from oni_jax.runtime import StopRequest


def make_deterministic() -> None:
    """Turns on deterministic GPU kernels, before JAX is imported: otherwise XLA may choose others in each process."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None).

    Returns:
        The exit code: 0 done, 1 an actor process died, 2 bad input or no finished episode (one line on stderr),
        130 interrupted.
    """
    return run_program("evaluate", argv, EvaluationConfig(), check_evaluate, _run)


def _run(config: EvaluationConfig, stop: StopRequest) -> int:
    make_deterministic()
    from oni_jax.evaluation.program import evaluate  # imports JAX, which takes seconds: after the checks
    from oni_jax.labels import labels_by
    from oni_jax.system import keep_compiled_code

    keep_compiled_code()
    recorder = None
    if config.record:
        from oni_jax.viewing.recordings import Recorder

        recorder = Recorder(config, stop)
    return evaluate(config, stop, labels_by, recorder)


if __name__ == "__main__":
    sys.exit(main())
