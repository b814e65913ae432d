"""What a run tells of itself: rows of numbers, written to several places and shown while it runs.

A row maps names to numbers, words, histograms and answers (`rows`); `names` says what each name means. Every place gets
the same row under the same step, `env_steps`, and takes what it can hold.
"""

from oni_jax.metrics.names import METRICS, Metric, undocumented
from oni_jax.metrics.progress import NullProgress, Progress, build_progress
from oni_jax.metrics.rows import Histogram, Row, histogram, printable
from oni_jax.metrics.sinks import JsonlSink, MultiSink, Sink, build_sinks, write_json
from oni_jax.metrics.statistics import RateMeter, RateMeters, RollingStats
from oni_jax.metrics.tensorboard_sink import TensorBoardSink
from oni_jax.metrics.wandb_sink import WandbSink

__all__ = [
    "METRICS",
    "Histogram",
    "JsonlSink",
    "Metric",
    "MultiSink",
    "NullProgress",
    "Progress",
    "RateMeter",
    "RateMeters",
    "RollingStats",
    "Row",
    "Sink",
    "TensorBoardSink",
    "WandbSink",
    "build_progress",
    "build_sinks",
    "histogram",
    "printable",
    "undocumented",
    "write_json",
]
