"""Learning a reward from labelled pairs."""

import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from launch import train_reward
from oni_jax.host.runtime import StopRequest
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.offline.dataset import PairDataset
from oni_jax.offline.observed_pairs import MessagePairs, observe
from oni_jax.offline.pair_config import TrainReward
from oni_jax.offline.pair_reward_training import Fit, accuracy, make_step, split_rows
from oni_jax.ops.losses import ranking_loss
from oni_jax.rewards.oni.reward_model import load_reward_model, save_reward_model
from oni_jax.rewards.trained import holds_trained
from oni_jax.settings.fields import UserError, with_values
from oni_jax.types import ModelState
from tests.offline.pairs import padded, random_dataset, write_dataset

SMALL = "--encoder_msg_model none --use_blstats --encoder_embedding_dim 16 --encoder_hidden_dim 16".split()


def gold_dataset(directory: pathlib.Path, num_pairs: int = 200) -> pathlib.Path:
    """The sub-episode with more gold at its steps is the better one; every tenth pair is not labelled."""
    rng = np.random.default_rng(0)
    blstats = np.zeros((num_pairs, 2, 3, 27), np.int64)
    blstats[..., 13] = rng.integers(0, 3000, (num_pairs, 2, 3))
    gold = blstats[..., 13].sum(2)
    labels = (gold[:, 1] > gold[:, 0]).astype(np.int8)
    labels[::10] = 3
    score = np.where(gold > gold[:, ::-1], 1, 0)[:, ::-1]  # the score says the opposite
    arrays = {"data/blstats": blstats, "info/score": score, "preference/gold": labels}
    return write_dataset(directory, arrays)


def train(directory: pathlib.Path, folder: pathlib.Path, *words: str) -> int:
    where = ["--dataset_dir", str(directory), "--train_dir", str(folder.parent), "--experiment", folder.name]
    return train_reward.main([*where, "--annotator", "gold", "--batch_size", "32", "--reward_lr", "1e-2", *words])


def test_a_preference_is_learnt_and_its_statistics_are_saved(tmp_path, capsys):
    directory, folder = gold_dataset(tmp_path / "data"), tmp_path / "models" / "gold"
    assert train(directory, folder, "--num_epochs", "6", *SMALL) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "validation accuracy" in line]
    assert len(lines) == 6
    against_gold, against_score = (float(x) for x in re.findall(r"(?:gold|score) (\S+)", lines[-1]))
    validation = np.load(directory / "preference" / "gold.npy")[split_rows(200, seed=1).validation]
    firsts, seconds = np.sum(validation == 0), np.sum(validation == 1)
    base_rate = max(firsts, seconds) / (firsts + seconds)
    assert f"gold {against_gold:.3f} (base rate {base_rate:.3f}), score " in lines[-1]
    assert against_gold > 0.9 and against_score == pytest.approx(1 - against_gold, abs=2e-3)

    model = load_reward_model(str(folder))
    network = make_ranking_network(model.network)
    observed = observe(PairDataset(str(directory), ["data/blstats"]), network)
    batch = observed.batch(split_rows(200, seed=1).training)
    rewards = np.asarray(network.apply(model.params, {k: x.reshape(-1, *x.shape[3:]) for k, x in batch.items()}))
    assert rewards.shape == (160 * 2 * 3,)
    assert model.mean == pytest.approx(rewards.mean(), abs=1e-4)
    assert model.variance == pytest.approx(rewards.var(), rel=1e-4)
    normalised = (rewards - rewards.mean()) / np.sqrt(rewards.var() + 1e-8)
    np.testing.assert_allclose(
        [model.quantiles[round(0.05 * i, 2)] for i in range(1, 20)],
        np.quantile(normalised, np.arange(1, 20) * 0.05),
        atol=1e-3,
    )
    assert train(directory, folder, *SMALL) == 2
    assert "holds a reward model already" in capsys.readouterr().err


class Linear(nn.Module):
    """A stand-in for a ranking network: a weighted sum of a message's bytes."""

    @nn.compact
    def __call__(self, observations):
        messages = observations["message"].astype(jnp.float32) / 256
        weights = self.param("weights", nn.initializers.normal(), (256,))
        return messages @ weights[: messages.shape[1]]


def message_pairs(directory: pathlib.Path) -> tuple[PairDataset, MessagePairs]:
    dataset = PairDataset(str(directory), ["data/message"])
    return dataset, MessagePairs(dataset, Linear())  # type: ignore[arg-type]


def test_each_message_is_scored_once_and_each_step_has_its_reward(tmp_path):
    texts = [[[b"a", b"b"], [b"", b"a"]], [[b"long" * 30, b"b"], [b"a", b"c\xff"]], [[b"d", b"d"], [b"d", b"d"]]]
    dataset, pairs = message_pairs(write_dataset(tmp_path, {"data/message": padded(texts, 200)}))
    params = {"params": {"weights": np.random.default_rng(0).normal(size=256).astype(np.float32)}}
    expected = dataset.messages(slice(None)) / 256 @ params["params"]["weights"][:200]
    np.testing.assert_allclose(pairs.all_rewards(params), expected, rtol=1e-5, atol=1e-6)
    rows = np.array([1, 0])
    scored = jax.jit(pairs.score)(params, pairs.batch(rows))
    np.testing.assert_allclose(scored, expected[rows], rtol=1e-5, atol=1e-6)
    found = expected[rows].ravel()[pairs.unique_indices(rows)]
    assert sorted(found.tolist()) == sorted(set(expected[rows].ravel().tolist())) and len(found) == 5


def test_quantiles_are_of_distinct_messages(tmp_path):
    texts = [[[b"common"], [b"common"]]] * 40 + [[[b"rare %d" % i], [b"common"]] for i in range(10)]
    _, pairs = message_pairs(write_dataset(tmp_path, {"data/message": padded(texts)}))
    labels = np.array([2] * 40 + [0] * 10)
    config = with_values(TrainReward(), {"batch_size": 16, "reward_lr": 0.1})
    fit = Fit(config, Linear(), pairs, labels, np.arange(50))  # type: ignore[arg-type]
    assert fit.run_epoch(1, StopRequest())
    model, rewards = fit.model(np.arange(45))  # 40 + 5 pairs, 6 distinct messages
    weights = np.asarray(model.params["params"]["weights"])
    distinct = padded([b"common", *(b"rare %d" % i for i in range(5))]) / 256 @ weights
    everything = rewards[:45].ravel()
    assert model.mean == pytest.approx(everything.mean(), abs=1e-5)
    assert model.variance == pytest.approx(everything.var(), rel=1e-4)
    normalised = (distinct - model.mean) / np.sqrt(model.variance + 1e-8)
    np.testing.assert_allclose(model.quantiles[0.5], np.quantile(normalised, 0.5), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.quantiles[0.95], np.quantile(normalised, 0.95), rtol=1e-3, atol=1e-4)


def test_a_step_is_that_of_the_mean_loss_of_labelled_pairs_on_any_number_of_devices():
    def score(params, batch):
        return batch["x"] @ params["w"]

    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(8, 2, 3, 4)).astype(np.float32)}
    labels = np.array([0, 1, 2, 3, 3, 3, 1, 0], np.int32)
    params, optimizer = {"w": jnp.ones(4)}, optax.sgd(1.0)
    state = ModelState(params, optimizer.init(params))
    rewards = jnp.asarray(batch["x"]).mean(2)
    grads = jax.jit(jax.grad(lambda params: ranking_loss(rewards @ params["w"], jnp.asarray(labels))))(params)
    for num_devices in (1, 2, 4):
        step = jax.vmap(make_step(score, optimizer, num_devices), (None, None, None, 0), axis_name="devices")
        new, metrics = jax.jit(step)(state, (), (batch, labels), jnp.arange(num_devices))
        for copy in new.params["w"]:
            np.testing.assert_allclose(copy, 1 - grads["w"], rtol=1e-5)
        told = accuracy(np.asarray(rewards @ params["w"])[..., None], labels)
        np.testing.assert_allclose(metrics["accuracy"], told, rtol=1e-5)


def test_accuracy_leaves_ties_and_unknown_pairs_out():
    rewards = np.array([[[0.0, 0], [1, 0]], [[3, 0], [1, 1]], [[0, 0], [1, 1]], [[0, 0], [1, 1]], [[1, 1], [0, 0]]])
    assert accuracy(rewards, np.array([1, 0, 2, 3, 1])) == pytest.approx(2 / 3)
    assert np.isnan(accuracy(rewards, np.full(5, 2)))


def test_the_split_depends_on_the_seed_alone():
    split = split_rows(50, 7)
    assert len(split.training) == 40 and len(split.validation) == 10
    assert sorted([*split.training, *split.validation]) == list(range(50))
    np.testing.assert_array_equal(split.training, split_rows(50, 7).training)
    assert split.training.tolist() != split_rows(50, 8).training.tolist()


@pytest.mark.parametrize(
    "words, missing, text",
    [
        ([], "data/message", "data/message.npy: no such file"),
        (SMALL, "info/score", "info/score.npy: no such file"),
        (
            [*SMALL, "--annotator", "nobody"],
            "",
            "preference/nobody.npy: no such file, which a data set must have; launch.annotate_pairs makes it",
        ),
        ([*SMALL, "--use_glyphs"], "", "data/glyphs.npy: no such file"),
        ([*SMALL, "--annotator", "unlabelled"], "", "no pair of the training split has a label yet"),
        (["--use_crop"], "", "--use_blstats"),
        (["--encoder_msg_model", "none"], "", "has no input"),
        (["--experiment", "a/../b"], "", "--experiment"),
        (["--reward_lr", "0"], "", "--reward_lr"),
        (["--dataset_dir", "/nowhere"], "", "/nowhere"),
    ],
)
def test_refused_in_one_line(tmp_path, capsys, words, missing, text):
    directory = gold_dataset(random_dataset(tmp_path / "data", 200, 3), 200)
    write_dataset(directory, {"preference/unlabelled": np.full(200, 3)})
    if missing:
        (directory / f"{missing}.npy").unlink()
    assert train(directory, tmp_path / "models" / "x", *words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and text in lines[0]


def test_a_request_to_stop_leaves_the_last_whole_epoch(tmp_path, capsys, monkeypatch):
    from oni_jax.offline import pair_reward_training

    directory, folder = gold_dataset(tmp_path / "data"), tmp_path / "models" / "gold"
    stop = StopRequest()
    save = pair_reward_training.save_reward_model
    monkeypatch.setattr(
        pair_reward_training, "save_reward_model", lambda *given: (save(*given), setattr(stop, "reason", "SIGINT"))
    )
    values = dict(dataset_dir=str(directory), annotator="gold", train_dir=str(folder.parent), experiment=folder.name)
    small = dict(encoder_msg_model="none", use_blstats=True, encoder_embedding_dim=16, encoder_hidden_dim=16)
    config = with_values(TrainReward(), {**values, **small, "batch_size": 32})
    assert pair_reward_training.train_reward(config, stop) == 0
    assert "last complete epoch's model" in capsys.readouterr().out
    assert load_reward_model(str(folder)).network.torchbeast.use_blstats
    settings = next((folder / "reward_model" / "1" / "settings").glob("*"))
    assert json.loads(settings.read_text())["notes"]["epochs"] == 1


@pytest.mark.parametrize("full_at, code", [(1, 2), (2, 0), (3, 2)])
def test_a_full_disk_ends_nothing_while_an_earlier_model_stays(tmp_path, capsys, monkeypatch, full_at, code):
    def save(folder, epoch, *rest):
        if epoch == full_at:
            raise UserError(f"{folder} can't be written")
        save_reward_model(folder, epoch, *rest)

    monkeypatch.setattr("oni_jax.offline.pair_reward_training.save_reward_model", save)
    folder = tmp_path / "models" / "gold"
    assert train(gold_dataset(tmp_path / "data"), folder, "--num_epochs", "3", *SMALL) == code
    told = capsys.readouterr()
    assert (told.out + told.err).count("can't be written") == 1
    assert holds_trained(str(folder)) == (full_at > 1)


def test_a_model_that_is_not_finite_does_not_take_a_good_one_s_place(tmp_path, capsys, monkeypatch):
    original = Fit.model

    def model(self, rows):
        made, rewards = original(self, rows)
        return made, rewards if self._epochs == 1 else np.full_like(rewards, np.nan)

    def run_epoch(self, epoch, stop):
        self._epochs = epoch
        return whole_epoch(self, epoch, stop)

    whole_epoch = Fit.run_epoch
    monkeypatch.setattr(Fit, "model", model)
    monkeypatch.setattr(Fit, "run_epoch", run_epoch)
    folder = tmp_path / "models" / "gold"
    assert train(gold_dataset(tmp_path / "data"), folder, "--num_epochs", "3", *SMALL) == 2
    assert "epoch 2's model are not finite: lower --reward_lr" in capsys.readouterr().err
    assert load_reward_model(str(folder))
