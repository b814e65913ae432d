"""Command-line programs; `python -m launch` lists them."""

import sys

if sys.argv[:1] == ["-m"] or sys.argv[0].endswith("/oni"):  # a program of this package starts; else it is imported
    from launch.interrupts import leave_quietly

    leave_quietly()
