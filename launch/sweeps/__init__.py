"""Sweeps."""

SWEEP = "ONI_JAX_SWEEP"  # environment variable: the process of the sweep that starts a run
