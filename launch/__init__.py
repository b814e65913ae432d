"""Command-line programs; `python -m launch` lists them."""

import sys

if getattr(sys, "argv", [])[:1] == ["-m"] or sys.argv[0].endswith("/oni"):  # a program of this package starts
    from launch.interrupts import leave_quietly

    leave_quietly()  # before anything is imported that takes time
    from launch.programs import check_module

    check_module(sys.orig_argv)  # else Python looks for the module, and ends with Python's words
