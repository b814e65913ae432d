"""A training with recorded answers: what it pays, counts and says."""

import contextlib
import pathlib
import time
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.annotation.prompts import load_prompt
from oni_jax.annotation.queries.choices import encode_label
from oni_jax.answers.form import AnswerFile, Header, Row, write_answers
from oni_jax.envs.registry import languages
from oni_jax.host.runtime import StopRequest
from oni_jax.learner.loop import Annotator
from oni_jax.settings.config import Config, with_values
from oni_jax.training import build
from oni_jax.training.parts import Makers, open_annotator
from oni_jax.training.plan import resolve
from oni_jax.types import Annotation, Item
from tests.support.processes import RETRIEVAL, SMALL, Launched, rows, summary

CATCH = languages()["catch"]
CAPTIONS = {b"The ball is to the left.": 0, b"The paddle is below the ball.": 1}  # all captions of Catch but one


class Complete(Annotator):
    """A service whose answers so far have all arrived when it is polled first."""

    def __init__(self, service, num_held: int):
        self._service, self._num_held, self.labels_of = service, num_held, service.labels_of

    def poll(self):
        found, deadline = self._service.poll(), time.monotonic() + 30.0
        while self._service.stats()["labels_held"] < self._num_held:
            time.sleep(0.01)
            found += self._service.poll()
            assert time.monotonic() < deadline
        return found

    def submit(self, queries) -> None:
        self._service.submit(queries)

    def room(self) -> int:
        return self._service.room()

    def stats(self):
        return self._service.stats()

    def close(self) -> None:
        self._service.close()


def config_of(**values) -> Config:
    settings = {"root_env": "Catch-v0", "llm_reward_type": "online_cls", "llm_reward_coeff": 0.3, "num_workers": 1}
    settings |= {"actor_pool": "serial", "num_envs_per_worker": 4, "encoder_custom": "mlp_encoder", "hidden_size": 8}
    settings |= {"batch_size": 20, "rollout": 5, "recurrence": 5, "train_for_env_steps": 200, "save_every_sec": 0.0}
    return with_values(Config(), {**settings, **values})


def trained(config: Config, folder: pathlib.Path) -> tuple[list[np.ndarray], dict]:
    @contextlib.contextmanager
    def complete(*args) -> Iterator[Annotator]:
        with open_annotator(*args) as service:
            yield Complete(service, len(CAPTIONS))

    with contextlib.ExitStack() as stack:
        makers = Makers(annotator=complete)
        training = build.build_training(resolve(config), str(folder), stack, makers=makers)
        training.train(StopRequest())
        leaves = [np.asarray(x) for x in jax.tree.leaves(training.learner.state.params)]
        return leaves, dict(training.summary())


def test_retrieval_is_bit_for_bit_that_of_a_server_with_the_same_answers(tmp_path):
    items: dict[Item, bytes] = {(text,): encode_label(label, float(label)) for text, label in CAPTIONS.items()}
    file = str(tmp_path / "answers.jsonl.gz")
    header = Header("catch", "classification", ("defaultgoal",), "llm")
    write_answers(file, AnswerFile(header, {item: Row((answer,)) for item, answer in items.items()}))
    (tmp_path / "recorded").mkdir()
    recorded, of_file = trained(config_of(answers=file), tmp_path / "recorded")
    (tmp_path / "asked").mkdir()
    asked = config_of(llm_server_addr="127.0.0.1:9", llm_model="llm")  # it has answered, and is away now
    store = LabelStore(str(tmp_path / "asked" / "labels.sqlite"))
    digest = load_prompt(asked.annotation, CATCH).digest
    store.put_many("llm", digest, [(Annotation(item, answer), "") for item, answer in items.items()])
    store.close()
    served, of_server = trained(asked, tmp_path / "asked")
    assert len(recorded) == len(served) and all(map(np.array_equal, recorded, served))
    assert of_file["rewarded_steps"] == of_server["rewarded_steps"] > 0
    assert of_file["labels_asked"] == 0 and of_file["labels_unanswered"] > 0
    assert 0 < of_file["steps_unanswered_fraction"] < 1


@pytest.mark.slow
def test_a_run_without_a_server_learns_from_recorded_answers_and_starts_no_judge(tmp_path):
    words = "--train_for_env_steps=4096", "--goal_key=combat", f"--train_dir={tmp_path}", "--experiment=run"
    run = Launched("launch.train", *SMALL, *RETRIEVAL, *words)
    output = run.finish()
    assert run.process.returncode == 0, output
    assert "classification: 11,374 answers of Claude, recorded 2026-11" in output and "stand-in" not in output
    done = summary(tmp_path / "run")
    assert done["labels_by"] == "Claude, recorded 2026-11" and done["hparams"]["answers"] == "recorded"
    assert done["labels_held"] == 11374 and done["labels_asked"] == 0
    assert done["steps_unanswered_fraction"] < 0.05
    assert rows(tmp_path / "run")[-1]["steps_unanswered_fraction"] == pytest.approx(
        done["steps_unanswered_fraction"], abs=0.01
    )
