"""Sources of a run's labels: its settings, and its label store where several made them."""

import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.runs.labels import labels_by
from oni_jax.runs.plan import Plan
from oni_jax.settings.config import Config
from oni_jax.settings.fields import with_values
from tests.support.labelled import labelled

JUDGE = "rule-based judge, not an LLM"
LLM = {"llm_server_addr": "node1:9001", "llm_model": "llama"}


def config_of(reward="online_cls", **values) -> Config:
    return with_values(Config(), {"llm_reward_type": reward, "root_env": "Catch-v0", **values})


def write_labels(path, config: Config, **numbers: int) -> None:
    """Labels for the run's prompt by models with these numbers of them, and for another prompt."""
    store = LabelStore(str(path))
    digest = Plan(config).prompt(config.annotation, "classification").digest
    for model, number in numbers.items():
        items = [((b"%d" % i,), 1) for i in range(number)]
        store.put_many(model.replace("_", "-"), digest, [(labelled(*item), "") for item in items])
    store.put_many("foreign", "another prompt", [(labelled((b"a",), 1), "")])
    store.close()


@pytest.mark.parametrize(
    "config, text",
    [
        (config_of("none"), ""),
        (config_of("cosine-bow"), ""),
        (config_of("of-a-plugin-that-is-missing"), ""),
        (config_of(), JUDGE),
        (config_of(root_env="NetHackScore-v1"), "Claude, recorded 2026-11"),
        (config_of(root_env="NetHackScore-v1", answers="judge"), JUDGE),
        (config_of(judge_wrong_fraction=0.2), f"{JUDGE}, a fraction of 0.2 made wrong"),
        (config_of(judge_wrong_fraction=0.2, judge_wrong_seed=3), f"{JUDGE}, a fraction of 0.2 made wrong"),
        (config_of(**LLM), "llama at node1:9001"),
        (config_of(**{**LLM, "llm_model": "rule-based-judge"}), f"{JUDGE} at node1:9001"),
    ],
)
def test_labels_by_the_settings(tmp_path, config, text):
    assert labels_by(Plan(config), str(tmp_path)) == text


def test_rewards_that_ask_several(tmp_path):
    config = config_of()
    config = with_values(config, {"others": ((config.reward, with_values(config.annotation, LLM)),)})
    assert labels_by(Plan(config), str(tmp_path)) == f"{JUDGE}, llama at node1:9001"


def test_a_run_that_went_on_with_another_has_their_fractions(tmp_path):
    write_labels(tmp_path / "labels.sqlite", config_of(), rule_based_judge=1, llama=3)
    assert labels_by(Plan(config_of(**LLM)), str(tmp_path)) == f"llama at node1:9001 (75.0%), {JUDGE} (25.0%)"


def test_labels_in_a_shared_store_may_be_of_other_runs(tmp_path):
    config = config_of(**LLM, label_store=str(tmp_path / "shared.sqlite"))
    write_labels(tmp_path / "shared.sqlite", config, rule_based_judge=1, llama=3)
    assert labels_by(Plan(config), str(tmp_path)) == "llama at node1:9001"


def test_a_store_that_cannot_be_read_leaves_the_settings(tmp_path):
    (tmp_path / "labels.sqlite").write_text("damaged")
    assert labels_by(Plan(config_of()), str(tmp_path)) == JUDGE
