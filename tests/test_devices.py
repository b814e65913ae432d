"""A run on eight simulated devices learns what it learns on one; in a separate process."""

import dataclasses
import pathlib
import sys
import types
from typing import Any

import jax
import numpy as np
import pytest

from launch import evaluate
from launch import train as train_program
from oni_jax.learner.descent import Examples
from oni_jax.learner.shards import shard_take
from oni_jax.ops.captions import both_ends, merge_captions, split_captions
from oni_jax.parallel import Replicas
from oni_jax.rewards import trainer
from oni_jax.rewards.trained import load_trained
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import LearnerConfig
from oni_jax.settings.worlds import DevicesConfig, EnvConfig
from oni_jax.training.plan import choose_devices
from oni_jax.types import CaptionBatch, StepCaptions, Trajectory
from tests import test_resume
from tests.show.terminals import person
from tests.support.processes import Launched, equal_on_devices
from tests.test_resume import DEVICE, OF_GOALS, Answers, train, write_files
from tests.worlds.actors.test_server import Played, check_actions, unroll

ROLLOUT, NUM_GAMES = 5, 16


ADAM_EPS = 1e-2  # Adam makes whole steps of gradients that are all rounding; not so with a large epsilon


def config_of(folder: pathlib.Path, name: str, devices: DevicesConfig) -> Config:
    """Three updates of sixteen trajectories."""
    config = test_resume.config_of(folder, name, 0)
    batch_size = NUM_GAMES * ROLLOUT
    return dataclasses.replace(
        config,
        devices=devices,
        actors=dataclasses.replace(config.actors, num_envs_per_worker=NUM_GAMES, worker_num_splits=4),
        learner=dataclasses.replace(config.learner, batch_size=batch_size, adam_eps=ADAM_EPS),
        run=dataclasses.replace(config.run, train_for_env_steps=3 * batch_size, save_every_steps=0),
    )


def act() -> None:
    """Two devices act: what is learnt from is what the policy says, from the memory that each of them kept."""
    played = Played(EnvConfig(root_env="Catch-v0", max_episode_steps=7), num_batches=4, devices=jax.devices()[3:5])
    assert {*played.exchange.device_of_slot.tolist()} == {0, 1}
    held = [{*x.devices()} for states in played.server._states for x in jax.tree.leaves(states.initial)]
    assert held == [{device} for device in jax.devices()[3:5]]
    for trajectory in played.trajectories:
        unroll(played, trajectory)
        check_actions(trajectory)
    assert any(np.any(x) for x in jax.tree.leaves(played.trajectories[-1].initial_core_state))


def take() -> None:
    """Each of four devices takes the trajectories with the indices from its shard."""
    replicas = Replicas(jax.devices()[:4])
    steps: Any = np.arange(24.0).reshape(3, 8)
    trajectory = Trajectory(*[steps] * len(Trajectory._fields))._replace(initial_core_state=np.arange(8))
    examples = Examples(trajectory, np.arange(24.0).reshape(1, 3, 8), trajectory.rewards)
    taken = jax.jit(shard_take(replicas))(np.array([1]), examples)
    np.testing.assert_array_equal(taken.trajectory.rewards, trajectory.rewards[:, 1::2])
    np.testing.assert_array_equal(taken.trajectory.initial_core_state, [1, 3, 5, 7])
    np.testing.assert_array_equal(taken.intrinsic_rewards, examples.intrinsic_rewards[..., 1::2])


def compare(folder: pathlib.Path, *names: str) -> None:
    """Trains on one device, and on eight. One acts: which games are answered together decides what they draw."""
    assert [len(devices) for devices in choose_devices(config_of(folder, "none", DevicesConfig(8, 1)))] == [8, 1]
    act()
    take()
    write_files(folder)
    trainer.ADAM_EPS = ADAM_EPS
    for name in names:
        one, eight = (
            train(config_of(folder, name, DevicesConfig(count, 1)), folder / f"{name}-{count}", Answers())
            for count in (1, 8)
        )
        assert one["counted"][-1] > 0 or name == "none"  # steps with an intrinsic reward
        assert one.keys() == eight.keys()
        for key, expected in one.items():
            np.testing.assert_allclose(eight[key], expected, rtol=1e-4, atol=1e-5, err_msg=f"{name} {key}")
    print("equal")


DEVICES, HOSTS = (
    (DEVICE, DEVICE + OF_GOALS),
    ("none", "online_motif", "online_cls", "online_cls_reward_model", "motif", "cosine-bow"),
)


@pytest.mark.slow
@pytest.mark.parametrize("names", [DEVICES, HOSTS], ids=["device environment", "Catch"])
def test_the_number_of_devices_changes_nothing(names, tmp_path):
    equal_on_devices(8, "-m", "tests.test_devices", str(tmp_path), *names, timeout_secs=900)


def captions_of(seed: int) -> CaptionBatch:
    rng = np.random.default_rng(seed)
    messages = [bytes([97 + i]) for i in rng.permutation(8)]
    return CaptionBatch(messages, rng.integers(0, 8, (3, 4)).astype(np.int32), {"x": rng.random((3, 4, 2))})


def said(captions: CaptionBatch) -> list[list[bytes]]:
    return [[captions.captions[i] for i in row] for row in captions.index]


def test_the_captions_at_both_ends_share_their_messages():
    before, caused = captions_of(0), captions_of(1)
    both = both_ends(StepCaptions(before, caused))
    assert said(both) == said(before) + said(caused) and len(set(both.captions)) == len(both.captions)
    assert both.observations["x"].shape == (6, 4, 2)


def test_captions_of_several_processes_and_of_shares():
    parts = [captions_of(0), captions_of(1)]
    merged = merge_captions(parts)
    assert said(merged) == [a + b for a, b in zip(*map(said, parts))]
    np.testing.assert_array_equal(merged.observations["x"], np.concatenate([p.observations["x"] for p in parts], 1))
    firsts = [said(merged)[t][i] for t in range(3) for i in range(8)]
    assert list(merged.captions) == list(dict.fromkeys(firsts))  # each once, later ones behind
    backwards = CaptionBatch(merged.captions, merged.index[::-1])
    both = split_captions(StepCaptions(merged, backwards), 4)
    assert [sum(rows, []) for rows in zip(*(said(share.caused) for share in both))] == said(merged)[::-1]
    shares = [share.before for share in both]
    assert [len(share.captions) for share in shares] == [len(set(sum(said(share), []))) for share in shares]
    assert [sum(rows, []) for rows in zip(*map(said, shares))] == said(merged)
    shown = np.concatenate([share.observations["x"] for share in shares], axis=1)
    np.testing.assert_array_equal(shown, merged.observations["x"])


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (DevicesConfig(learner_devices=2), "--learner_devices 2: this process has 1"),
        (DevicesConfig(inference_devices=3), "--inference_devices 3: this process has 1"),
    ],
)
def test_devices_that_are_not_there(devices, text):
    with pytest.raises(UserError, match=text):
        choose_devices(Config(devices=devices))


def test_processes_of_unequal_devices_need_a_number_of_them(monkeypatch):
    devices = [types.SimpleNamespace(process_index=index) for index in (0, 0, 1)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    with pytest.raises(UserError, match=r"--learner_devices: the processes have \[1, 2\] devices"):
        choose_devices(Config())


def test_a_batch_that_can_not_be_shared(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 3)
    with pytest.raises(UserError, match="--batch_size 1024: 32 trajectories .* over 3 devices; give a multiple of 96"):
        choose_devices(Config(learner=LearnerConfig()))


def test_a_cpu_that_counts_as_several_devices(tmp_path):
    words = (
        f"--train_dir={tmp_path} --experiment=run --root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=16 "
    )
    words += "--use_rnn=False --llm_reward_type=none --actor_pool=serial --num_workers=1 --num_envs_per_worker=4 "
    words += "--rollout=8 --recurrence=8 --batch_size=32 --train_for_env_steps=64 --device=cpu --learner_devices=2"
    run = Launched("launch.train", *words.split(), "--cpu_devices=2")
    assert "64 steps" in run.finish() and run.process.returncode == 0


SAVE_ON_THE_SECOND = """
import sys
import jax
from oni_jax.rewards.trained import save_trained
save_trained(sys.argv[1], 1, {"weights": jax.device_put(jax.numpy.arange(3.0), jax.devices()[1])}, {})
print("equal")
"""


def test_model_of_another_device_is_read(tmp_path):
    equal_on_devices(2, "-c", SAVE_ON_THE_SECOND, str(tmp_path))
    assert jax.device_count() == 1
    assert load_trained(str(tmp_path))[0]["weights"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "world",
    [
        "--root_env=Catch-v0 --actor_pool=serial --num_workers=1 --num_envs_per_worker=4 --llm_reward_type=none",
        pytest.param(
            "--root_env=BabyAI-Text-GoToLocal-RedBall-S20 --llm_reward_type=online_cls_reward_model,rnd "
            "--caption=event --llm_reward_coeff=0.1,0.1",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_checkpoint_of_two_devices_is_used_with_one(tmp_path, world, capfd):
    shape = "--encoder_custom=mlp_encoder --hidden_size=16 --rollout=8 --recurrence=8 --batch_size=32"
    folder = f"--train_dir={tmp_path} --experiment=run"
    two = f"{folder} {world} {shape} --train_for_env_steps=64 --device=cpu --cpu_devices=2 --learner_devices=2"
    run = Launched("launch.train", *two.split())
    assert "64 steps" in run.finish() and run.process.returncode == 0
    one = f"--resume={tmp_path / 'run'} --train_for_env_steps=128 --cpu_devices=1 --learner_devices=1"
    assert train_program.main(one.split()) == 0 and "resumed at 64 environment steps" in capfd.readouterr().out
    assert evaluate.main(f"{folder} --episodes=2 --max_episode_steps=20 --num_workers=1".split()) == 0


@pytest.mark.slow
def test_checkpoint_of_two_devices_plays_with_one(tmp_path):
    words = (
        f"--train_dir={tmp_path} --experiment=run --root_env=BabyAI-Text-GoToLocal-RedBall-S20 --llm_reward_type=none "
    )
    words += "--encoder_custom=mlp_encoder --hidden_size=16 --rollout=8 --recurrence=8 --batch_size=32 --cpu_devices=2 "
    run = Launched("launch.train", *words.split(), "--train_for_env_steps=64", "--device=cpu", "--learner_devices=2")
    assert "64 steps" in run.finish() and run.process.returncode == 0
    with person(
        "play", f"--train_dir={tmp_path}", "--experiment=run", "--policy=greedy", columns=120, rows=40
    ) as player:
        player.reads("step      2 of")
        player.type("q")
        assert player.leaves()[0] == 0


if __name__ == "__main__":
    compare(pathlib.Path(sys.argv[1]), *sys.argv[2:])
