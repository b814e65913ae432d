"""The model card of a shared policy: Markdown, made from what the run holds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from oni_jax.runs.shared_file import POLICY, REWARD_STATE, Shared
from oni_jax.settings.config import Config, hparams
from oni_jax.settings.fields import printable

USE = """## Use

```sh
python -m launch.evaluate {name}.zip --compare random
python -m launch.play {name}.zip --policy sample
python -m launch.import {name}.zip
```

```python
import oni_jax

run = oni_jax.load_run("{name}.zip")  # run.act, run.evaluate, run.score
```

Without oni_jax: the file is a zip of texts and NumPy's arrays; `numpy.load("{name}.zip")` gives the arrays by name.
"""


def model_card(
    shared: Shared, config: Config, scores: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], who: str
) -> str:
    """Returns the card.

    Args:
        shared: the content of the file.
        config: settings of the run.
        scores: its last row of metrics, and its evaluations by file.
        answers: the sources of its answers.
        who: that answered, in words.
    """
    rows = [
        ("task", config.env.root_env),
        ("environment steps", f"{shared.env_steps:,}"),
        ("seed", config.run.seed),
        *_rewards(config),
        ("who answered", who or "nobody: nothing is asked"),
        *(("recorded answers", text) for text in map(_source, answers) if text),
        ("parameters of the policy", f"{_size(shared, POLICY):,}"),
        *((("parameters of the rewards", f"{size:,}"),) if (size := _size(shared, REWARD_STATE)) else ()),
        *((("code, which runs with --trust_code alone", ", ".join(code)),) if (code := shared.code()) else ()),
        ("written by", shared.written_by),
        ("licence", shared.licence or "none named: ask who made it"),
    ]
    parts = [
        f"# {shared.name}",
        f"A policy for `{_cell(config.env.root_env)}`.",
        _table(("", ""), rows),
        "## Returns",
        "\n\n".join(_returns(shared, scores)),
        USE.format(name=shared.name).rstrip(),
        "## Settings that are not the defaults",
        _table(("setting", "value"), [(name, value) for name, value in hparams(config).items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _rewards(config: Config) -> Iterator[tuple[str, str]]:
    yield "reward of the task", f"weight {config.reward.extrinsic_reward_coeff:g}"
    for term in config.terms():
        if term.reward.llm_reward_coeff:
            yield "intrinsic reward", f"{term.reward.llm_reward_type}, weight {term.reward.llm_reward_coeff:g}"


def _source(answer: Mapping[str, Any]) -> str:
    if "file" not in answer:
        return ""
    header = answer["header"]
    return f"{answer['file']}: {header['model']}, {header['recorded']}, {header['licence']}; SHA-256 {answer['sha256']}"


def _size(shared: Shared, folder: str) -> int:
    return sum(math.prod(array.shape) for array in shared.below(folder).values())


def _returns(shared: Shared, scores: Mapping[str, Any]) -> Iterator[str]:
    mean = scores["last_row"].get("mean_return")
    if mean is not None:
        yield f"Mean return of the last episodes of training: {mean:.4g}."
    for tree in scores["evaluations"].values():
        played = [*tree["evaluations"], *([tree["other"]] if "other" in tree else [])]
        try:
            rows = [_row(each) for each in played if each["env_steps"] in (None, shared.env_steps)]
        except (KeyError, TypeError, ValueError):
            continue  # another version's
        if any(each["env_steps"] == shared.env_steps for each in played):
            yield _table(("who plays", "task", "episodes", "mean return", "95 % interval", "success"), rows)
            return
    yield "No evaluation: `launch.evaluate --compare random --json RUN/evaluation.json` before the export adds one."


def _row(played: Mapping[str, Any]) -> tuple[Any, ...]:
    of = played["measures"]["return"]
    interval = "[{:.4g}, {:.4g}]".format(*of["interval"])
    success = f"{played['success']['fraction']:.1%}" if played["success"] else ""
    who = f"{played['player']}, {played['policy']}" if played["experiment"] else played["player"]
    return who, played["root_env"], played["num_episodes"], f"{of['mean']:.4g}", interval, success


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(x) for x in line)} |" for line in lines)


def _cell(value: Any) -> str:
    return printable(str(value)).replace("|", "\\|")
