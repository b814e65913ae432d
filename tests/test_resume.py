"""A run that was interrupted ends in the same bits as one that was not: one thread, fixed seeds, answers replayed."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.annotation.queries.choices import encode_label
from oni_jax.host.runtime import StopRequest
from oni_jax.networks import ragged
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.registry import REWARD_TYPES
from oni_jax.runs.checkpointing import Checkpoints, Saved
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from oni_jax.settings.learning import LearnerConfig, NetworkConfig, TorchbeastConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.run import RunConfig
from oni_jax.settings.worlds import ActorConfig, EnvConfig, EpisodeGoalConfig, GoalConfig
from oni_jax.training import build
from oni_jax.training.parts import Makers
from oni_jax.training.plan import resolve
from oni_jax.types import Annotation, Query
from tests.rewards.bk.preference_models import HORIZON, write_untrained
from tests.rewards.built_in import BUILT_IN
from tests.rewards.word_vector_files import write_text
from tests.support import signals_plugin
from tests.support.processes import COMPILES_SOON, ROOT

NUM_UPDATES = 5  # before the interruption, and after it
ROLLOUT = 5
BATCH_SIZE = 4 * ROLLOUT  # 6 games, 3 a slot: when the run is interrupted a slot is half read, and another waits
NETHACK = "NetHackScoreExtendedActions-v1"
DEVICE = signals_plugin.NAME
NETWORK = NetworkConfig(
    encoder_custom="mlp_encoder",
    hidden_size=16,
    policy_initialization="xavier_uniform",
    torchbeast=TorchbeastConfig(msg_model="lt_cnn_small", hidden_dim=16),
)


ELLM_MODEL = "ellm by a model"
OF_GOALS = " of several goals"  # after a name: one agent has them
POTENTIAL = """
def compute_reward(obs, past_obs, past_actions):
    value = sum(past_actions)
    for name in obs:
        for now, before in zip(obs[name], past_obs[0][name]):
            value += now == before
    return value, {}
"""


GOALS = {
    "goals": ["The paddle is below the ball.", "You catch the ball."],
    "keys": ["The ball is to the left.", "The ball is to the right.", "The paddle is below the ball.", "You miss."],
    "indices": [[0], [1], [0, 1], []],
}


def config_of(folder: pathlib.Path, name: str, num_updates: int) -> Config:
    """name: a type of reward, on Catch; NETHACK, without one; or DEVICE, where a device environment is labelled."""
    name, *several = name.split(OF_GOALS)
    ellm = {"ellm": (DEVICE, "ellm"), ELLM_MODEL: (DEVICE, "ellm")}
    others = {NETHACK: (NETHACK, "none"), DEVICE: (DEVICE, "online_cls"), **ellm}
    root_env, reward_type = others.get(name, ("Catch-v0", name))
    is_device = root_env == DEVICE
    files: dict[str, dict[str, Any]] = {
        "motif": {"reward_dir": f"{folder}"},
        "cosine-bow": {"word_vectors": f"{folder / 'words.vec'}"},
        # The scale of the first start holds in the second.
        "bk-code": {"reward_dir": f"{folder}", "potential_warmup_steps": NUM_UPDATES * BATCH_SIZE // 2},
        "bk-goal": {
            "reward_dir": f"{folder}",
            "potential_warmup_steps": NUM_UPDATES * BATCH_SIZE // 2,
            "potential_embeddings": "grams",
            "potential_goal_threshold": 0.1,
        },
    }
    if name == "bk-pref":
        warmup_steps = NUM_UPDATES * BATCH_SIZE // 2
        path = write_untrained(f"{folder}", root_env)
        files[name] = {"reward_dir": path, "potential_horizon": HORIZON, "potential_warmup_steps": warmup_steps}
    coeff = 0.0 if reward_type == "none" else 0.3
    return Config(
        env=EnvConfig(
            root_env=root_env,
            max_episode_steps=30,
            goals=GoalConfig(suggester={"ellm": "oracle", ELLM_MODEL: "model"}.get(name, "none")),
            episode_goal=EpisodeGoalConfig(weights="1,2,1", steps=4) if several else EpisodeGoalConfig(),
        ),
        actors=ActorConfig(num_workers=1, num_envs_per_worker=6, actor_pool="auto" if is_device else "serial"),
        network=dataclasses.replace(NETWORK, goal_conditioned=bool(several)),
        learner=LearnerConfig(
            batch_size=BATCH_SIZE,
            rollout=ROLLOUT,
            recurrence=ROLLOUT,
            learning_rate=1e-2,
            ppo_epochs=2 if is_device else 1,
        ),
        reward=with_values(
            RewardConfig(),
            dict(
                llm_reward_type=reward_type,
                llm_reward_coeff=coeff,
                reward_model_batch_size=8,
                reward_model_gradient_steps_per_update=3,
                reward_dataset_size=64,
                online_dataset_subsample=1,
                **files.get(reward_type, {}),
            ),
        ),
        annotation=AnnotationConfig(goal_key="gold,combat,stairs")
        if several
        else AnnotationConfig(goal="" if "ellm" in name else "The player wants to catch the ball."),
        run=RunConfig(
            train_for_env_steps=num_updates * BATCH_SIZE, save_every_sec=0, save_every_steps=NUM_UPDATES * BATCH_SIZE
        ),
    )


def write_files(folder: pathlib.Path) -> None:
    """A ranking model and word vectors."""
    params = jax.jit(make_ranking_network(NETWORK).init)(jax.random.key(3), {"message": jnp.zeros((1, 256), jnp.uint8)})
    save_reward_model(str(folder), 1, RewardModel(NETWORK, params, 0.01, 0.2, {q: q - 5 for q in QUANTILES}), {})
    table = {"catch": [1.0, 0.1], "ball": [0.3, 0.8], "miss": [-1.0, 0.4], "paddle": [0.2, 0.2], "left": [0.7, -1.0]}
    write_text(folder / "words.vec", table)


class Answers:
    """An annotator that answers by rule, some items sooner than others, or replays such answers.

    The first poll after an interruption gives what a label store would have held, too.
    """

    labels_of = "rule"

    def __init__(
        self, suggests: bool = False, replayed: Mapping[int, list[Annotation]] | None = None, num_polls: int = 0
    ):
        self._suggests = suggests  # goals; else it labels
        self._replays = replayed is not None
        self.at_poll: dict[int, list[Annotation]] = defaultdict(list, replayed or {})
        self._num_polls, self._start = num_polls, num_polls
        self._asked: set[Query] = set()

    def submit(self, queries: Sequence[Query]) -> None:
        for query in queries:
            item, question = query
            if query not in self._asked and not self._replays:
                delay, label = 1 + len(self._asked) % 4, (sum(map(sum, item)) + question) % (1 + len(item))
                text = b"- say 0\n- say 1" if self._suggests else encode_label(label, 0.5)
                self.at_poll[self._num_polls + delay].append(Annotation(item, text, question))
            self._asked.add(query)

    def room(self) -> int:
        return sys.maxsize

    def poll(self) -> list[Annotation]:
        self._num_polls += 1
        if self._num_polls == self._start + 1:
            return [answer for poll in range(self._num_polls + 1) for answer in self.at_poll[poll]]
        answers = self.at_poll[self._num_polls]
        assert all(Query(answer.item, answer.question) in self._asked for answer in answers), "not asked again"
        return answers

    def stats(self) -> Mapping[str, float | str]:
        return {}

    def answers(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        pass

    def save(self, path: pathlib.Path) -> None:
        rows = [
            (poll, [m.decode() for m in a.item], (a.answer or b"").hex(), a.question)
            for poll, aa in self.at_poll.items()
            for a in aa
        ]
        path.write_text(json.dumps(rows))

    @classmethod
    def restore(cls, path: pathlib.Path) -> "Answers":
        at_poll = defaultdict(list)
        for poll, messages, answer, question in json.loads(path.read_text()):
            item = tuple(message.encode() for message in messages)
            at_poll[poll].append(Annotation(item, bytes.fromhex(answer), question))
        return cls(False, at_poll, NUM_UPDATES)


def train(config: Config, folder: pathlib.Path, answers: Answers, checkpoints=Checkpoints) -> dict[str, np.ndarray]:
    """Trains to the limit; all of the training state's arrays, and what was counted."""
    makers = Makers(annotator=lambda *_: nullcontext(answers), checkpoints=checkpoints)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "LENGTHS", ())  # little to compile
        folder.mkdir(exist_ok=True)
        training = build.build_training(resolve(config), str(folder), stack, makers=makers)
        training.train(StopRequest())
        state, progress = training.learner.state, training.progress
        counted = [progress.env_steps, progress.updates, progress.episodes, progress.rewarded_steps]
        leaves = jax.tree_util.tree_leaves_with_path(state)
        means = {name: np.array(x) for name, x in training.summary().items() if name.startswith("episode/intrinsic")}
        assert bool(means) == (config.reward.llm_reward_type != "none")
        arrays = {jax.tree_util.keystr(path): np.array(x) for path, x in leaves}
        return {**arrays, **means, **training.learner.running_returns.save(), "counted": np.array(counted)}


class InMemory(Checkpoints):
    """Gives back what was saved first, not what was written."""

    saved: Saved | None = None

    def save(self, step: int, saved: Saved) -> None:
        super().save(step, saved)
        InMemory.saved = InMemory.saved or saved._replace(state=jax.tree.map(jnp.copy, saved.state))

    def restore(self, like: object) -> Saved | None:
        return InMemory.saved


def uninterrupted(folder: pathlib.Path, name: str) -> None:
    """2N updates in one process, with a checkpoint half way; of NetHack with new games there."""
    answers = Answers(name == ELLM_MODEL)
    checkpoints = InMemory if name == NETHACK else Checkpoints
    if name == NETHACK:
        train(config_of(folder, name, NUM_UPDATES), folder / name, answers, checkpoints)
        assert InMemory.saved and not InMemory.saved.acting
    found = train(config_of(folder, name, 2 * NUM_UPDATES), folder / name, answers, checkpoints)
    assert name in (NETHACK, "none") or found["counted"][-1] > 0  # steps with an intrinsic reward
    np.savez(folder / f"{name}.npz", **found)  # type: ignore[arg-type]
    answers.save(folder / f"{name}.json")


def resumed(folder: pathlib.Path, name: str) -> None:
    """From the checkpoint of N updates to 2N, in the same bits."""
    shutil.rmtree(folder / name / "checkpoints" / str(2 * NUM_UPDATES * BATCH_SIZE))
    assert os.listdir(folder / name / "checkpoints") == [str(NUM_UPDATES * BATCH_SIZE)]
    answers = Answers.restore(folder / f"{name}.json")
    found = train(config_of(folder, name, 2 * NUM_UPDATES), folder / name, answers)
    with np.load(folder / f"{name}.npz") as expected:
        assert expected["counted"].tolist() == found["counted"].tolist()
        assert expected.keys() == found.keys()
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key], err_msg=key)


def in_new_process(function: Callable, folder: pathlib.Path, name: str) -> None:
    command = [sys.executable, "-m", "tests.test_resume", function.__name__, str(folder), name]
    environment = {**os.environ, **COMPILES_SOON, "JAX_PLATFORMS": "cpu"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"


ASKING_BY_GOAL = [name for name in BUILT_IN if REWARD_TYPES[name].by_goal and REWARD_TYPES[name].query]
NAMES = [
    pytest.param(name, marks=() if name in ("online_cls", DEVICE + OF_GOALS) else pytest.mark.slow)
    for name in (*BUILT_IN, ELLM_MODEL, NETHACK, DEVICE, *(name + OF_GOALS for name in (*ASKING_BY_GOAL, DEVICE)))
]


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_same_as_an_uninterrupted_one(name, tmp_path):
    """With each type of reward, on Catch; on an accelerator; and on NetHack, where both begin new games half way."""
    (tmp_path / "potential.py").write_text(POTENTIAL)
    (tmp_path / "goals.json").write_text(json.dumps(GOALS))
    if name in ("motif", "cosine-bow"):
        write_files(tmp_path)
    in_new_process(uninterrupted, tmp_path, name)
    in_new_process(resumed, tmp_path, name)


if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # one thread
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]), sys.argv[3])
