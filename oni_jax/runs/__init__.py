"""A run on disk: its settings, checkpoints, policies, labels, curves, and the captions that it met."""
