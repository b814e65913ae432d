"""Lists the programs: `python -m launch`, or `oni`. Runs one: `oni train --flag value ...`."""

import importlib
import sys
from collections.abc import Sequence

from launch.programs import programs, unknown_program
from oni_jax.host.files import keep_printing

USAGE = "python -m launch.PROGRAM --help lists its flags"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program of a command line (that of the process when None). Returns its exit code; 2: there is none."""
    words = sys.argv[1:] if argv is None else argv
    known = programs()
    name = words[0].removeprefix("launch.") if words else ""
    if name in known:
        program = importlib.import_module(f"launch.{name}")
        if argv is not None:
            return program.main(words[1:])
        sys.argv = [name, *words[1:]]
        return program.main()
    if argv is None:
        keep_printing()
    if words and words[0].lstrip("-") not in ("h", "help"):
        print(f"error: {unknown_program(words[0])}", file=sys.stderr)
        return 2
    width = max(map(len, known))
    for name, text in known.items():
        print(f"python -m launch.{name:<{width}}  {text}")
    print(f"\n{USAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
