"""A training run: what it is built of, its loop, and what it counts."""
