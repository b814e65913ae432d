"""Figures are written for what there is data for, can be decoded, and say what they show."""

import io

import numpy as np
import pytest
from PIL import Image

from oni_jax.runs.curves import Setting, group_runs
from oni_jax.runs.run import Run
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.show.report.panels import DRAWN
from oni_jax.show.report.plots import draw, image, write_figures
from tests.show.report.runs import learning, row, write_run


@pytest.fixture
def settings(tmp_path) -> list[Setting]:
    folders = [write_run(tmp_path / f"score_seed_{seed}", learning(seed), seed=seed) for seed in (1, 2, 3)]
    folders.append(write_run(tmp_path / "_$odd_name^", learning(5), gamma=0.9))
    return group_runs([Run(str(folder)).metrics(DRAWN, folder.name) for folder in folders])


def test_files_of_what_there_is_data_for(settings, tmp_path):
    written, missing = write_figures(
        [setting._replace(runs=setting.runs[:1]) for setting in settings[:1]], str(tmp_path / "plots")
    )
    assert missing == ["intrinsic_return", "goal_model"]
    assert len(written) == 16 and sum(path.endswith(".pdf") for path in written) == 8
    for path in written:
        data = open(path, "rb").read()
        if path.endswith(".pdf"):
            assert data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF")
        else:
            picture = Image.open(io.BytesIO(data))
            picture.load()
            assert picture.width >= 1000 and len(set(np.asarray(picture.convert("L")).ravel().tolist())) > 20


def test_panels_without_data_are_named(tmp_path):
    folder = write_run(tmp_path / "a", [row(1, 1.0, mean_return=1.0)], root_env="Catch-v0")
    written, missing = write_figures(group_runs([Run(str(folder)).metrics(DRAWN, "a")]), str(tmp_path / "plots"))
    assert missing == [
        "intrinsic_return",
        "success",
        "achievements",
        "goals",
        "depth",
        "labels",
        "goal_model",
        "reward_model",
        "speed",
    ]
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["return.pdf", "return.png"]
    assert len(written) == 2


def test_a_line_a_seed_a_mean_and_a_band(settings):
    figure = draw("return", settings)
    assert figure is not None
    steps, hours = figure.axes
    assert (steps.get_xlabel(), hours.get_xlabel()) == ("environment steps", "minutes of training")
    assert steps.get_title(loc="left") == "Return, mean of the last 50 episodes"
    lines = [line for line in steps.lines if line.get_label() != "random play"]
    assert len(lines) == 3 + 1 + 1 and len(steps.collections) == 1
    mean = max(lines[:4], key=lambda line: line.get_linewidth())
    assert np.allclose(np.asarray(mean.get_ydata(), float)[[0, -1]], [2.0, 13.0])
    assert np.allclose(np.asarray(hours.lines[0].get_xdata(), float)[-1], 2.0)  # minutes
    texts = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert texts == ["score (3 seeds)", "_$odd_name^"]
    assert "95 % interval" in figure.legends[0].get_title().get_text()
    low, high = steps.get_ylim()
    assert low > -3 and high < 20  # the runs, not the band, set the scale
    assert figure.get_suptitle() == "NetHackStaircase-v1"


def test_a_panel_for_each_of_the_rewards(tmp_path):
    of_types = {f"episode/intrinsic_return/{name}": 2.0 for name in ("online_cls", "rnd")}
    rows = [row(i, float(i), **of_types) for i in (1, 2)]
    config = with_values(Config(), {"llm_reward_type": "online_cls"})
    others = ((with_values(config.reward, {"llm_reward_type": "rnd"}), config.annotation),)
    folder = write_run(tmp_path / "a", rows, llm_reward_type="online_cls", others=others)
    figure = draw("intrinsic_return", group_runs([Run(str(folder)).metrics(DRAWN, "a")]))
    assert figure and [axis.get_title(loc="left").split(",")[0] for axis in figure.axes] == [
        *["Intrinsic return (online_cls)"] * 2,
        *["Intrinsic return (rnd)"] * 2,
    ]


def test_metrics_of_one_of_several_rewards_are_drawn_by_its_name(tmp_path):
    config = with_values(Config(), {"llm_reward_type": "online_cls_reward_model"})
    others = ((with_values(config.reward, {"llm_reward_type": "rnd"}), config.annotation),)
    rows = [row(i, float(i), **{"reward/online_cls_reward_model/accuracy": 0.5}) for i in (1, 2)]
    folder = write_run(tmp_path / "a", rows, llm_reward_type="online_cls_reward_model", others=others)
    figure = draw("reward_model", group_runs([Run(str(folder)).metrics(DRAWN, "a")]))
    title = "Reward model's accuracy on its batches (online_cls_reward_model)"
    assert figure and [axis.get_title(loc="left") for axis in figure.axes] == [title] * 2


def test_only_settings_with_data_are_in_the_legend(tmp_path):
    first = write_run(tmp_path / "a", [row(1, 1.0, **{"reward/accuracy": 0.5})])
    second = write_run(tmp_path / "b", [row(1, 1.0)], gamma=0.9)
    settings = group_runs([Run(str(folder)).metrics(DRAWN, folder.name) for folder in (first, second)])
    figure = draw("reward_model", settings)
    assert figure is not None and [text.get_text() for text in figure.legends[0].get_texts()] == [" a"]
    assert len(figure.axes) == 2  # metrics that no run has are left out
    assert draw("return", settings) is None


@pytest.mark.parametrize(
    "values, limits",
    [
        ((9.0, 10.0), (0.0, 10.5)),
        ((-4.0, -2.0), (-4.2, 0.0)),
        ((-1.0, 1.0), (-1.1, 1.1)),
        ((0.0, 0.0), (0.0, 1.05)),
        ((1e6, 2e6), (0.0, 2.1e6)),
    ],
)
def test_axis_begins_with_zero(tmp_path, values, limits):
    rows = [row(i, float(i), mean_return=value) for i, value in enumerate(values, 1)]
    folder = write_run(tmp_path / "a", rows, root_env="Elsewhere-v0")
    figure = draw("return", group_runs([Run(str(folder)).metrics(DRAWN, "a")]))
    assert figure
    assert all(axis.get_ylim() == pytest.approx(limits) for axis in figure.axes)


@pytest.mark.parametrize(
    "settings, is_drawn",
    [
        ([{}], True),
        ([{"max_episode_steps": 7}], False),  # another task than the measured one
        ([{"root_env": "Elsewhere-v0"}], False),  # a plugin's
        ([{}, {"gamma": 0.9}], True),
        ([{}, {"root_env": "Elsewhere-v0"}], False),
    ],
)
def test_random_play_is_a_line_of_the_return(tmp_path, settings, is_drawn):
    rows = [row(i, float(i), mean_return=1.0, env_steps_per_sec=1.0) for i in (1, 2)]
    folders = [
        write_run(tmp_path / f"{i}", rows, **{"root_env": "Catch-v0", **values}) for i, values in enumerate(settings)
    ]
    runs = group_runs([Run(str(folder)).metrics(DRAWN, folder.name) for folder in folders])
    found, other = draw("return", runs), draw("speed", runs)
    assert found and other and not any(axis.texts for axis in other.axes)
    texts = [text.get_text() for axis in found.axes for text in axis.texts]
    assert texts == (["random play -0.57"] * 2 if is_drawn else [])
    if is_drawn:
        heights = [{*np.asarray(line.get_ydata()).tolist()} for axis in found.axes for line in axis.lines]
        assert heights.count({-0.5703}) == 2 and found.axes[0].get_ylim()[0] < -0.58


def test_the_legend_says_who_made_the_labels(tmp_path):
    rewarded = {"llm_reward_type": "online_cls"}
    judged = {**rewarded, "answers": "judge"}
    folders = [write_run(tmp_path / f"score_{seed}", learning(seed), seed=seed, **judged) for seed in (1, 2)]
    folders.append(write_run(tmp_path / "llm", learning(1), llm_server_addr="node", llm_model="llama", **rewarded))
    figure = draw("return", group_runs([Run(str(folder)).metrics(DRAWN, folder.name) for folder in folders]))
    assert figure and [text.get_text().strip() for text in figure.legends[0].get_texts()] == [
        "score (2 seeds), labels by: rule-based judge, not an LLM",
        "llm, labels by: llama at node",
    ]


def test_equal_runs_give_equal_files(settings):
    figures = [draw("return", settings[:1]) for _ in range(2)]
    assert figures[0] and figures[1]
    assert image(figures[0], "pdf") == image(figures[1], "pdf")


def test_a_folder_that_cannot_be_made(settings, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--plots_dir .*file/plots: can't be written"):
        write_figures(settings, str(tmp_path / "file" / "plots"))
