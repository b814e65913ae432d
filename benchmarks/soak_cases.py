"""Kinds of run of the soak test: worlds, on the host and on the device, reward types and who answers."""

import functools
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.harness import ROOT_ENV
from benchmarks.reward_files import reward_settings
from tests.rewards.bk.preference_models import HORIZON, write_untrained

ROOT = pathlib.Path(__file__).resolve().parents[1]
BABYAI, CRAFTER = "BabyAI-Text-GoToLocal-RedBall-S20", "Crafter-v1"
CODE = ROOT / "oni_jax" / "answers" / "data" / "babyai_potential"
GOALS = {
    "goals": ["You choose the action: forward. Current observation: You see a red ball 1 step forward."],
    "keys": ["You see a red ball 3 steps forward"],
    "indices": [[0]],
}
HOST_FLAGS = "--num_workers 2 --num_envs_per_worker 20 --log_every_sec=5 --save_every_sec=60"
DEVICE_FLAGS = (
    "--hidden_size 64 --use_rnn False --batch_size 2048 --rollout 32 --max_episode_steps 400 "
    "--log_every_sec=5 --save_every_sec=60"
)
SMALL_DEVICE_FLAGS = (
    "--hidden_size 16 --use_rnn False --batch_size 128 --rollout 16 --recurrence 16 --num_minibatches 1 "
    "--max_episode_steps 40 --log_every_sec=1 --save_every_sec=5"
)


class Case(NamedTuple):
    root_env: str
    reward_type: str
    asks: bool = False  # a server, whose answers are compared with the label store
    flags: str = ""

    @property
    def on_device(self) -> bool:
        """True where the learner's devices play."""
        return self.root_env != ROOT_ENV

    def words(self) -> list[str]:
        """Returns the case's flags of launch.train, without the server and sizes; writes the files that they name."""
        encoder = {BABYAI: ["--encoder_custom=mlp_encoder"], CRAFTER: ["--encoder_custom=generic_encoder"]}
        is_none = self.reward_type == "none"
        given = {} if is_none else {"llm_reward_coeff": "0.4", "extrinsic_reward_coeff": "0.1"}
        given |= {"root_env": self.root_env, "llm_reward_type": self.reward_type, **_files(self.reward_type)}
        return (
            [f"--{name}={value}" for name, value in given.items()] + encoder.get(self.root_env, []) + self.flags.split()
        )


CASES = {  # each reward type once or more
    "nethack": Case(ROOT_ENV, "online_cls", asks=True),
    "nethack_classifier": Case(ROOT_ENV, "online_cls_reward_model", asks=True),
    "nethack_ranking": Case(ROOT_ENV, "online_motif", asks=True),
    "nethack_recorded": Case(ROOT_ENV, "online_cls", flags="--answers=recorded"),
    "nethack_motif": Case(ROOT_ENV, "motif"),
    "nethack_words": Case(ROOT_ENV, "cosine-bow"),
    "nethack_count": Case(ROOT_ENV, "count"),
    "babyai": Case(BABYAI, "online_cls", asks=True),
    "babyai_recorded": Case(BABYAI, "online_cls", flags="--answers=recorded --caption=event"),
    "babyai_code": Case(BABYAI, "bk-code"),
    "babyai_preferences": Case(BABYAI, "bk-pref"),
    "babyai_goals": Case(BABYAI, "bk-goal"),
    "babyai_apt": Case(BABYAI, "apt"),
    "babyai_none": Case(BABYAI, "none"),
    "crafter": Case(CRAFTER, "online_cls", asks=True, flags="--caption=event"),
    "crafter_suggested": Case(CRAFTER, "ellm", flags="--goal_suggester=llm --answers=recorded"),
    "crafter_rnd": Case(CRAFTER, "rnd"),
    "crafter_noveld": Case(CRAFTER, "noveld"),
}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="oni_jax_soak_files_")  # removed when the process ends


def _files(reward_type: str) -> dict[str, str]:
    """Returns the settings of a reward type that name its files, and writes these."""
    folder = pathlib.Path(_folder().name)
    if reward_type == "bk-code":
        return {"reward_dir": str(CODE)}
    if reward_type == "bk-pref":
        return {"reward_dir": write_untrained(str(folder), BABYAI), "potential_horizon": str(HORIZON)}
    if reward_type == "bk-goal":
        (folder / "goals.json").write_text(json.dumps(GOALS))
        return {"reward_dir": str(folder), "potential_embeddings": "grams", "potential_goal_threshold": "0.1"}
    return dict(reward_settings(reward_type))


def losses(figures: Mapping[str, Any]) -> list[str]:
    """Returns what a case lost, in words."""
    labels = figures.get("labels", {})
    counts = {name: figures[name] for name in ("exit_code", "left_over", "unsaved_steps")}
    counts |= {f"labels {name}": labels.get(name, 0) for name in ("lost", "changed", "wrong")}
    return [f"{name} {count:,}" for name, count in counts.items() if count]
