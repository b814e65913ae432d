"""Every type of reward: a run is killed, its newest checkpoint and its labels are damaged, and it goes on."""

import json
import os
import pathlib
import sqlite3

import pytest

from oni_jax.annotation.label_store import LabelStore
from oni_jax.host.run_files import saved_steps
from oni_jax.rewards.registry import REWARD_TYPES
from tests.rewards.bk.preference_models import HORIZON, write_untrained
from tests.rewards.built_in import BUILT_IN
from tests.support import signals_plugin
from tests.support.launched import Launched, rows
from tests.support.processes import summary
from tests.support.trials import trial
from tests.test_resume import GOALS, POTENTIAL, write_files

SMALL = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --hidden_size=16 --num_workers=1 --num_envs_per_worker=8 "
    "--batch_size=256 --rollout=16 --recurrence=16 --log_every_sec=0.1 --save_every_steps=1024 --save_every_sec=0 "
    "--encoder_msg_model=lt_cnn_small --encoder_hidden_dim=16 --reward_model_batch_size=8"
)
SIGNALS = f"--root_env={signals_plugin.NAME} --plugin={signals_plugin.__name__}"
GOALS_BY_LLM, GOALS_BY_MODEL = "ellm by answers", "ellm by a model"
# Type -> its words; those that ask are answered by the judge.
WORDS = {
    "motif": "--reward_dir={files}",
    "cosine-bow": "--word_vectors={files}/words.vec",
    "bk-code": "--reward_dir={files}",
    "bk-goal": "--reward_dir={files} --potential_embeddings=grams --potential_goal_threshold=0.1",
    "bk-pref": f"--reward_dir={{files}}/preferences-Catch-v0 --potential_horizon={HORIZON}",
    "ellm": f"{SIGNALS} --goal_suggester=oracle",
    GOALS_BY_LLM: f"{SIGNALS} --goal_suggester=llm --answers=judge",
    GOALS_BY_MODEL: f"{SIGNALS} --goal_suggester=model --answers=judge",
}
QUICK = ("none",)
DAMAGED = b"7 0.5"


def words(files: pathlib.Path, name: str) -> list[str]:
    """Returns the words of a run with a type of reward, and writes the files that it reads."""
    files.mkdir()
    (files / "potential.py").write_text(POTENTIAL)
    (files / "goals.json").write_text(json.dumps(GOALS))
    if name in ("motif", "cosine-bow"):
        write_files(files)
    if name == "bk-pref":
        write_untrained(str(files), "Catch-v0")
    kind = name.partition(" ")[0]
    given = WORDS.get(name, "--answers=judge" if REWARD_TYPES[kind].query else "").format(files=files)
    shared = SMALL if "--root_env" not in given else SMALL.partition(" ")[2]
    coeff = 0 if kind == "none" else 0.3
    return [*shared.split(), f"--llm_reward_type={kind}", f"--llm_reward_coeff={coeff}", *given.split()]


def answers(folder: pathlib.Path) -> dict[bytes, bytes]:
    """Reads the committed rows of a label store; {} without one."""
    if not (path := folder / "labels.sqlite").exists():
        return {}
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        found = {bytes(item): bytes(answer) for item, answer in database.execute("SELECT item, answer FROM answers")}
    database.close()
    return found


def read_answers(folder: pathlib.Path) -> set[bytes | None]:
    """Returns the answers that are read of a label store, from rows that agree with their checksums."""
    with sqlite3.connect(folder / "labels.sqlite") as database:
        keys = database.execute("SELECT model, digest FROM prompts").fetchall()
    database.close()
    store = LabelStore(str(folder / "labels.sqlite"))
    found = {row.answer for key in keys for row in store.all(*key)}
    store.close()
    return found


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


@trial("kill")
@trial("corrupt checkpoint")
@trial("damaged rows")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in (*BUILT_IN, GOALS_BY_LLM, GOALS_BY_MODEL)
    ],
)
def test_killed_run_goes_on_from_the_newest_whole_checkpoint_with_the_labels_that_are_whole(name, tmp_path):
    given = [*words(tmp_path / "files", name), f"--train_dir={tmp_path}", "--experiment=run"]
    folder = tmp_path / "run"
    run = Launched("launch.train", *given)
    asks = "--answers=judge" in given
    run.wait_for(lambda: len(saved_steps(str(folder))) > 1 and rows(folder) and (answers(folder) or not asks), 240)
    run.kill()
    assert run.leftovers(but_files=True) == []
    held, (*_, older, newest) = answers(folder), saved_steps(str(folder))
    assert bool(held) == asks
    flip(max((folder / "checkpoints" / str(newest) / "state" / "d").glob("*"), key=os.path.getsize))
    wrong = next(iter(held), b"")
    if held:
        with sqlite3.connect(folder / "labels.sqlite") as database:
            database.execute("UPDATE answers SET answer = ? WHERE item = ?", (DAMAGED, wrong))
        database.close()
    again = Launched("launch.train", *given, f"--train_for_env_steps={newest + 1024}")
    output = again.finish(240)
    assert again.process.returncode == 0 and "Traceback" not in output, output
    assert f"resumed at {older:,} environment steps" in output and f"checkpoint {newest} can't be read" in output
    assert summary(folder)["state"] == "finished" and summary(folder)["env_steps"] >= newest + 1024
    assert (folder / "checkpoints" / f"{newest}.unreadable").is_dir() and again.leftovers() == []
    if held:
        assert "1 damaged rows are left out" in output, output
        kept = answers(folder)
        assert {item: kept[item] for item in held if item != wrong}.items() <= held.items()
        assert kept[wrong] in (DAMAGED, held[wrong])  # not met again, or asked again
        assert DAMAGED not in read_answers(folder)
