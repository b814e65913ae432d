"""The folder of a run with labels, made up."""

import pathlib

from oni_jax.annotation.judge_answers import JUDGE_MODEL
from oni_jax.annotation.label_store import LabelStore
from oni_jax.settings.config import Config
from tests.evaluation.runs import NETHACK, write_run
from tests.support.asking import load_prompt
from tests.support.labelled import labelled

SETTINGS = {**NETHACK, "answers": "judge", "llm_reward_type": "online_cls", "llm_reward_coeff": 0.1}


def write_labelled_run(folder: pathlib.Path, labels: dict[bytes, int], **settings: object) -> Config:
    """A run of the retrieval reward, whose label store holds these labels of messages."""
    config = write_run(folder, {**SETTINGS, **settings})
    store = LabelStore(str(folder / "labels.sqlite"))
    rows = [(labelled((message,), label, label), "") for message, label in labels.items()]
    digest = load_prompt(config.annotation, "classification").digest
    store.put_many(JUDGE_MODEL, digest, rows)
    store.close()
    return config
