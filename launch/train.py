"""Trains an agent (or resumes the training of one)."""

import sys
from collections.abc import Sequence

from launch import flags
from oni_jax.config import UserError
from oni_jax.runtime import StopRequest, use_large_pages


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with a command line (that of the process when None).

    Returns:
        The exit code: 0 done or stopped by a signal, 2 bad input (one line on stderr), 130 interrupted twice.
    """
    words = sys.argv[1:] if argv is None else argv
    if flags.wants_help(words):
        print(flags.help_text("python -m launch.train"))
        return 0
    if argv is None:
        use_large_pages()
    stop = StopRequest()
    try:
        with stop.installed():
            config = flags.parse(words)
            flags.check(config)
            from oni_jax import system  # brings JAX, which takes seconds: mistakes are told before

            return system.run(config, stop)
    except UserError as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted twice: left at once", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
