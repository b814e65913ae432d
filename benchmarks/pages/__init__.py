"""Pages: what docs/results.md and the README show of the results in the repository."""
