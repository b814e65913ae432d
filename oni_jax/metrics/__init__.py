"""What a run tells of itself: rows of numbers, written to several places and shown while it runs.

A row maps names to numbers (server_state: to a word). Every place gets the same row under the same step, `env_steps`.

| name | what |
|---|---|
| env_steps, updates | environment steps learnt from; updates of the policy |
| secs | seconds since this process started training |
| env_steps_per_sec, env_steps_per_sec_overall | over the last 10 s; since this process started training |
| episodes | episodes that have ended |
| mean_return, mean_length | of the last `stats_avg` episodes |
| episode/<name> | mean of each statistic that the environment reports, over the same episodes |
| rewarded_steps | steps learnt from whose intrinsic reward was not 0 |
| bad_updates | updates skipped, because loss or gradients were not finite |
| actor_restarts, game_restarts | actor processes replaced; single games that failed and were started anew |
| policy_lag_mean, policy_lag_max | versions between the policy that acted and the newest, of the last batch |
| learner_waits_share | share of the last row's time that the learner waited for trajectories |
| inference_waits_share | ... that inference waited for observations |
| actors_wait_share | ... that the actors waited for actions |
| games_paused_share | ... that games stood still because the learner had not taken what was collected |
| compilations | programs that XLA compiled for this process or found compiled; stands still after the first updates |
| captions_seen | distinct messages met by this process |
| labels_held | labels in hand for this model and prompt |
| labels_asked | messages, or pairs, put to the LLM server |
| answers_unreadable | answers without a label |
| requests_failed | requests that failed, each try counted |
| labels_backlog | messages, or pairs, that wait to be asked |
| server_state | what is known of the LLM server, a word; only in the JSONL file and the view |
| loss/<name> | terms of the loss and their companions, of the last update |
| reward/<name> | metrics of the reward type's own learning |
| annotation/<name> | requests, waiting times and failures of the annotation service, by kind |
"""

from oni_jax.metrics.progress import Progress, build_progress
from oni_jax.metrics.sinks import (
    JsonlSink,
    MultiSink,
    NullSink,
    Row,
    Sink,
    TensorBoardSink,
    WandbSink,
    build_sinks,
    write_json,
)
from oni_jax.metrics.statistics import RateMeter, RollingStats

__all__ = [
    "JsonlSink",
    "MultiSink",
    "NullSink",
    "Progress",
    "RateMeter",
    "RollingStats",
    "Row",
    "Sink",
    "TensorBoardSink",
    "WandbSink",
    "build_progress",
    "build_sinks",
    "write_json",
]
