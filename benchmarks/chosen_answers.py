"""Files of few answers for Crafter, chosen at random or by a model's uncertainty, and of partly wrong ones.

python -m benchmarks.chosen_answers --out train_dir/chosen_answers
"""

import os
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from benchmarks.harness import JSON, run_app, sized, write_report
from oni_jax.annotation.queries.suggestions import parsed
from oni_jax.answers.answerer import shipped_path
from oni_jax.answers.form import NO_GOAL, AnswerFile, read_answers, write_answers
from oni_jax.envs.registry import env_spec, languages
from oni_jax.offline.goal_config import TrainGoals
from oni_jax.offline.goal_training import learn, run_of
from oni_jax.rewards.ellm.goal_model import jaccard
from oni_jax.rewards.ellm.goal_rewards import ModelledGoalReward
from oni_jax.types import Item

NUMBERS = (100, 300, 1000, 3000)
WRONG = (10, 30)  # percent
FIRST = 50  # chosen at random, before anything is known to be uncertain

_OUT = flags.DEFINE_string("out", "train_dir/chosen_answers", "Folder of the files.")
_SEED = flags.DEFINE_integer("seed", 1, "Seed of the choice and of the model's weights.")


def chosen_by_uncertainty(answers: Mapping[Item, bytes], numbers: Sequence[int], seed: int) -> list[list[Item]]:
    """Returns items chosen half by half: those that a model which has learnt the earlier ones is least certain of."""
    items = [*answers]
    order = np.random.default_rng(seed).permutation(len(items))
    chosen, found = [items[i] for i in order[:FIRST]], []
    for number in numbers:
        while len(chosen) < number:
            rewards, state = learn(run_of(TrainGoals(seed=seed)), {item: answers[item] for item in chosen})
            left = [item for item in items if item not in {*chosen}]
            doubts = rewards.rewards[0].learning.doubts(state, [item[0] for item in left])
            assert doubts is not None
            size = min(number, 2 * len(chosen)) - len(chosen)
            chosen += [left[i] for i in np.argsort(-doubts, kind="stable")[:size]]
        found.append(chosen[:number])
    return found


def wrong(file: AnswerFile, percent: int, seed: int) -> AnswerFile:
    """Returns the file with so many of its answers exchanged for those of other items."""
    rng, items = np.random.default_rng(seed), [*file.rows]
    at = rng.permutation(len(items))[: len(items) * percent // 100]
    given = {items[i]: file.rows[items[j]] for i, j in zip(at, np.roll(at, 1))}
    return file._replace(rows={**file.rows, **given})


def agreement(answers: Mapping[Item, bytes], held_out: Mapping[Item, bytes], seed: int) -> float:
    """Returns the Jaccard index, on answers held out, of a model that has learnt these."""
    rewards, state = learn(run_of(TrainGoals(seed=seed)), answers)
    reward = rewards.rewards[0]
    assert isinstance(reward, ModelledGoalReward)
    inputs = [reward.model.reader.of_item(item[0]) for item in held_out]
    found = reward.model.predict(state.params, [row for row in inputs if row is not None]) > 0.5
    goals = env_spec(run_of(TrainGoals()).env).goals
    right = np.array([[goal in {*parsed(answer, strict=False)} for goal in goals] for answer in held_out.values()])
    return float(np.mean(jaccard(found, right)))


def main() -> None:
    os.makedirs(_OUT.value, exist_ok=True)
    file, seed = read_answers(str(shipped_path("crafter", "suggestions")), languages()), _SEED.value
    numbers = [sized(number, 60) for number in NUMBERS]
    items = [*file.rows]
    order = [items[i] for i in np.random.default_rng(seed + 1).permutation(len(items))]
    held_out, pool = order[: sized(2000, 20)], order[sized(2000, 20) : sized(len(order), 200)]
    answers = file.under(NO_GOAL)
    of_pool, of_held_out = ({item: answers[item] for item in items} for items in (pool, held_out))
    uncertain = chosen_by_uncertainty(of_pool, numbers, seed)
    figures = {"all": agreement(of_pool, of_held_out, seed)}
    for number, least_certain in zip(numbers, uncertain):
        for name, chosen in ((f"random_{number}", pool[:number]), (f"uncertain_{number}", least_certain)):
            rows = {item: file.rows[item] for item in chosen}
            write_answers(f"{_OUT.value}/{name}.jsonl.gz", file._replace(rows=rows), languages())
            figures[name] = agreement({item: of_pool[item] for item in chosen}, of_held_out, seed)
            print(name, round(figures[name], 4), flush=True)
    for percent in WRONG:
        write_answers(f"{_OUT.value}/wrong_{percent}_percent.jsonl.gz", wrong(file, percent, seed), languages())
    write_report(JSON.value, {f"agreement_{name}": value for name, value in figures.items()})


if __name__ == "__main__":
    run_app(main)
