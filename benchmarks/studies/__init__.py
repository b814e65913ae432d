"""Studies: questions answered by sweeps, whose results are in the repository."""
