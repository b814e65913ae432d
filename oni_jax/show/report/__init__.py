"""Plots over seeds, and reports of runs. No other part of the package imports it."""
