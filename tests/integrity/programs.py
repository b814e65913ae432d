"""Programs that write: their words, and what each needs to be there."""

import pathlib
import shutil
from typing import NamedTuple

from launch import annotate_pairs, annotate_segments, collect_segments
from tests.offline.pairs import random_dataset
from tests.support.launched import Launched

ABSENT = "127.0.0.1:9"  # a server that is away: programs wait for it
BABYAI = "--root_env=BabyAI-Text-GoToLocal-RedBall-S20"
CATCH = "--root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --hidden_size=32"
NETWORK = "--encoder_custom=mlp_encoder --hidden_size=16 --width=16 --batch_size=16"
GOALS = "--root_env=Crafter-v1 --reward_model_batch_size=8"


class Held(NamedTuple):
    """A program that holds a folder for long: {at}, which is {name} in {above}; {data} lies elsewhere."""

    words: str
    begins: str = ""  # line that it prints once it holds its folder; "": then there is something new in {above}


HELD = {
    "sweep": Held(
        f"seed=1-2 --train_dir={{above}} --experiment={{name}} -- {CATCH} --train_for_env_steps=100000000",
        "starts; output:",
    ),
    "train": Held(f"{CATCH} --train_dir={{above}} --experiment={{name}}", "compiling the update"),
    "write_potential": Held(f"{BABYAI} --reward_dir={{at}} --llm_server_addr={ABSENT}", "trying again"),
    "write_goals": Held(f"{BABYAI} --reward_dir={{at}} --llm_server_addr={ABSENT}", "trying again"),
    "annotate_segments": Held(
        f"{BABYAI} --reward_dir={{at}} --llm_server_addr={ABSENT} --num_pairs=20", "are done already"
    ),
    "annotate_pairs": Held(f"--directory={{at}} --llm_server_addr={ABSENT}", "are done already"),
    "train_reward": Held(
        "--dataset_dir={data} --train_dir={above} --experiment={name} --num_epochs=1000000",
        "labelled ones to learn from",
    ),
    "train_potential": Held(f"{BABYAI} --reward_dir={{at}} {NETWORK} --num_epochs=1000000", "pairs to learn from"),
    "collect_pairs": Held("--directory={at} --num_env_steps=1000000000"),
    "collect_segments": Held(f"{BABYAI} --policy=random --directory={{at}} --episodes=1000000"),
}


def prepared(folder: pathlib.Path, program: str) -> list[str]:
    """Makes what a program of HELD needs. Returns its words, for the folder `above/new`."""
    data, at = random_dataset(folder / "data"), folder / "above" / "new"
    (data / "preference").mkdir()
    shutil.copy(data / "info" / "score.npy", data / "preference" / "none.npy")
    if program == "annotate_pairs":
        random_dataset(at)
    if program == "train_reward":
        assert annotate_pairs.main([f"--directory={data}", "--annotator=score"]) == 0
    if program == "train_potential":
        labelled_segments(folder / "segments", at)
    return HELD[program].words.format(at=at, above=at.parent, name=at.name, data=data).split()


def started(folder: pathlib.Path, program: str, words: list[str]) -> Launched:
    """Starts a program of HELD with its words, and waits until it holds its folder."""
    above, text = folder / "above", HELD[program].begins
    before = {*above.glob("*")}
    run = Launched(f"launch.{program}", *words)
    run.wait_for(lambda: text in run.output() if text else {*above.glob("*")} - before, 240)
    return run


def labelled_segments(segments: pathlib.Path, at: pathlib.Path) -> None:
    """Plays episodes into `segments`, and has the judge compare them in the folder `at`."""
    played = f"{BABYAI} --policy=random --directory={segments} --episodes=8 --max_episode_steps=30"
    assert collect_segments.main(played.split()) == 0
    compared = f"{BABYAI} --segments={segments} --reward_dir={at} --num_pairs=64 --answers=judge"
    assert annotate_segments.main(compared.split()) == 0
