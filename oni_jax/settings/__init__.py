"""Settings: a frozen dataclass of each topic, and `Config`, which holds those of a training run."""
