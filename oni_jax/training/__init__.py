"""A training run: its parts, its loop, and its counters."""
