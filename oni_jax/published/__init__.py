"""Checkpoints of the published systems, read as ours."""
