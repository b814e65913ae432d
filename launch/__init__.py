"""Programs, each run by `python -m launch.NAME`."""

import sys

if getattr(sys, "argv", [])[:1] == ["-m"]:  # Python looks for the module, and would end with words of its own
    from launch.programs import check_module

    check_module(sys.orig_argv)
