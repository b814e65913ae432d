"""Studies: the page and the figures are those of the results; results are collected, added to, and summarised."""

import dataclasses
import io
import json
import re
import shlex

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from PIL import Image

from benchmarks.pages import effects, estimates, figures, page, readme
from benchmarks.studies import __main__ as program
from benchmarks.studies import base, results
from benchmarks.studies.base import Contrast, Study
from launch.sweeps import children
from oni_jax.answers.answerer import shipped_path
from oni_jax.rewards.bk.goals import GoalLibrary, write_library
from oni_jax.settings.fields import UserError
from tests.launch.stand_in_sweep import use_stand_in
from tests.test_docs import commands

TINY = Study(
    name="tiny",
    title="Sums",
    question="Does it add up?",
    answer="It does.",
    contrasts=(Contrast("high", "low"),),
    shown={"low": "a low one", "high": "a high one"},
    cases=("low: --gamma 0.5", "high: --gamma 0.9"),
    axes=("root_env=Catch-v0,BabyAI-Text-GoToLocal-RedBall-S20", "seed=1-2"),
    flags="--encoder_custom mlp_encoder --llm_reward_type none --train_for_env_steps 1000",
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A study whose runs are those of the stand-in, and whose results are elsewhere."""
    monkeypatch.setattr(children, "CHILD", children.CHILD)
    use_stand_in()
    monkeypatch.setattr(base, "FOLDER", tmp_path)
    return TINY


def cells(text: str, label: str) -> list[str]:
    """Returns the cells of the first row of a table that has the label."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def page_of(study: Study) -> str:
    return page.pages([study])[f"results/{study.name}.md"]


def run(study: Study, tmp_path) -> int:
    return program.run(study, str(tmp_path / "runs"), 4)


@pytest.mark.parametrize("study", program.STUDIES.values(), ids=program.STUDIES)
def test_training_accepts_the_runs(study, tmp_path):
    if study.prepared:  # something of the kind
        (tmp_path / "goals").mkdir()
        write_library(str(tmp_path / "goals"), GoalLibrary(["go"], ["there"], [[0]]))
        for file in re.findall(rf"{study.prepared}/(\S+\.jsonl\.gz)", " ".join(study.cases)):
            (tmp_path / file).symlink_to(shipped_path("crafter", "suggestions"))
        cases = tuple(case.replace(study.prepared, str(tmp_path)) for case in study.cases)
        study = dataclasses.replace(study, cases=cases)
    runs = study.runs(str(tmp_path))
    assert [run.name for run in runs] == [*study.planned()]
    assert len(runs) >= 9 and [*dict.fromkeys(run.cell["case"] for run in runs)] == [
        case.partition(":")[0] for case in study.cases
    ]


def test_pages_are_those_of_the_results():
    made = page.pages(list(program.STUDIES.values()))
    there = [page.PAGE, *page.FOLDER_OF_PAGES.iterdir()]
    kept = {str(path.relative_to(page.DOCS)): path.read_text() for path in there}
    assert kept == made, "run `python -m benchmarks.studies`"
    text = readme.PATH.read_text()
    assert text == readme.with_table(text, program.STUDIES), "run `python -m benchmarks.studies`"


def test_the_readme_needs_its_runs(tmp_path):
    lost = dataclasses.replace(program.STUDIES["ellm"], folder=str(tmp_path))
    with pytest.raises(UserError, match="ellm.json: the README needs its model, no_reward"):
        readme.with_table(readme.PATH.read_text(), {**program.STUDIES, "ellm": lost})


def test_commands_of_pages_run_studies():
    found = []
    for path in (page.PAGE, *page.FOLDER_OF_PAGES.iterdir()):
        for line in commands(path):
            words = shlex.split(line, comments=True)
            if words[:4] == ["python", "-m", "benchmarks.studies", "run"]:
                assert words[words.index("--jobs") + 1] == str(program.STUDIES[words[4]].jobs), line
                found.append(words[4])
    assert {*found} == {*program.STUDIES}  # see test_training_accepts_the_runs


def test_pages_of_results_are_short():
    made = page.pages(list(program.STUDIES.values()))
    assert sum(len(text.split()) for text in made.values()) <= 8500 and len(made["results.md"].split()) <= 950


@pytest.mark.parametrize("study", program.STUDIES.values(), ids=program.STUDIES)
def test_studies_show_cases_that_they_have(study):
    cases = {case.partition(":")[0] for case in study.cases}
    assert {*study.shown} <= cases and 2 <= len(study.shown) <= 6
    assert study.contrasts and study.title and study.question.endswith("?")
    assert bool(study.answer) == bool(results.load(study)["runs"])
    assert not re.search(r"[.?!] ", study.answer), "one sentence"
    for contrast in study.contrasts:
        assert contrast.held_out or {contrast.case, contrast.reference} <= cases
        assert not contrast.task or contrast.task in study.axes[0]


def test_no_figure_is_left_over():
    named = [f"{study.name}.png" for study in program.STUDIES.values() if results.counted(study)["runs"]]
    assert sorted(named) == sorted(path.name for path in figures.IMAGES.iterdir()) and named


@pytest.mark.parametrize("study", program.STUDIES.values(), ids=program.STUDIES)
def test_the_figures_are_those_of_the_results(study):
    data = figures.figure(study)
    if data is not None:
        files = (figures.IMAGES / f"{study.name}.png", io.BytesIO(data))
        kept, new = (np.asarray(Image.open(file).convert("RGB"), float) for file in files)
        assert kept.shape == new.shape and np.abs(kept - new).mean() < 1, "run `python -m benchmarks.studies`"


def test_labels_of_a_figure_have_room():
    for wanted in ([0.5, 0.5, 0.52], [0.0, 0.01, 0.9], [0.97, 0.98, 0.99], [0.1, 0.5, 0.9]):
        heights = np.array([0.1, 0.2, 0.1])
        middles = figures.spread(np.array(wanted), heights)
        assert (middles - heights / 2)[0] >= -1e-9 and (middles + heights / 2)[-1] <= 1 + 1e-9
        assert ((middles - heights / 2)[1:] >= (middles + heights / 2)[:-1] - 1e-9).all()
    assert middles.tolist() == [0.1, 0.5, 0.9]


def test_results_are_collected_and_later_seeds_are_added(tiny, tmp_path, capsys):
    assert run(dataclasses.replace(tiny, axes=(tiny.axes[0], "seed=1")), tmp_path) == 0
    first = json.loads((tmp_path / "tiny.json").read_text())
    assert first["steps"] == list(range(20, 1001, 20)) and len(first["runs"]) == 4
    low = first["runs"][0]
    assert (low["cell"], low["seed"], low["task"]) == ({"case": "low"}, 1, "Catch-v0")
    assert low["mean_return"][:5] == [None] * 4 + [1.5] and low["mean_return"][-1] == 1.5  # rows come every 100 steps
    assert "success" not in low and first["runs"][1]["success"][-1] == 0.5
    assert first["machines"][low["machine"]]["num_cores"] > 0 and low["train_secs"] > 0
    assert run(tiny, tmp_path) == 0
    found = results.load(tiny)
    assert [run["name"] for run in found["runs"]] == [planned.name for planned in tiny.runs(str(tmp_path / "runs"))]
    assert found["runs"][0] == low and len(found["machines"]) == 1
    assert "4 runs added to" in capsys.readouterr().out.splitlines()[-1]
    text = page_of(tiny)
    assert "`Catch-v0`, 1,000 steps, 2 seeds:" in text and "python -m benchmarks.studies run tiny" in text
    assert cells(text, "low")[1] == "2 [-4, 8]" and cells(text, "high")[1] == "2 [-4, 9]"
    assert cells(text, "a low one (`low`)")[1] == "2 [-4, 8]"
    assert "`high` minus `low`: return at the end +0.4 [-2.6, 3.4]." in text
    assert "| [Does it add up?](results/tiny.md) | It does. | return +0.4" in page.pages([tiny])["results.md"]
    assert (figures.figure(tiny) or b"").startswith(b"\x89PNG")


def test_the_first_steps_may_be_left_out(tiny, tmp_path):
    study = dataclasses.replace(tiny, cases=tiny.cases[:1], axes=(tiny.axes[0], "seed=1"))
    assert run(study, tmp_path) == 0
    kept = results.load(study)["runs"]
    found = results.counted(dataclasses.replace(study, left_out=200))
    assert len(kept) == 2
    for full, cut in zip(kept, found["runs"]):
        assert found["steps"][9] == 200 and cut["mean_return"] == [None] * 10 + full["mean_return"][10:]
        assert {**cut, "mean_return": 0, "success": 0} == {**full, "mean_return": 0, "success": 0}


def test_runs_are_compared_by_equal_time(tiny, tmp_path):
    flags = tiny.flags.replace("train_for_env_steps 1000", "train_for_seconds 100")
    study = dataclasses.replace(tiny, flags=flags, left_out=20, cases=tiny.cases[:1], axes=(tiny.axes[0], "seed=1"))
    assert run(study, tmp_path) == 0
    first = json.loads((tmp_path / "tiny.json").read_text())
    assert first["seconds"] == list(range(2, 101, 2)) and "steps" not in first
    low = first["runs"][0]
    assert (low["train_secs"], low["env_steps"]) == (100, 1000)
    assert low["mean_return"][:6] == [None] * 4 + [1.5] * 2  # the first row comes after ten seconds
    assert results.counted(study)["runs"][0]["mean_return"] == [None] * 10 + [1.5] * 40
    text = page_of(study)
    assert "`Catch-v0`, 100 seconds" in text and "The first 20 seconds are left out" in text
    lines = text.splitlines()
    header, low = (
        next(line for line in lines if line.startswith(start)) for start in ("|  | ", f"| {study.shown['low']} ")
    )
    assert [line.split("|")[-2].strip() for line in (header, low)] == ["million steps a run", "0.001"]
    assert figures.figure(study)


def test_more_metrics_are_in_the_table(tiny, tmp_path):
    study = dataclasses.replace(
        tiny,
        metric="success",
        also=("episode/kills",),
        left_out=20,
        cases=tiny.cases[:1],
        axes=("root_env=BabyAI-Text-GoToLocal-RedBall-S20", "seed=1-2"),
    )
    assert run(study, tmp_path) == 0
    lines = page_of(study).splitlines()
    header = next(line for line in lines if line.startswith("|    "))
    low = next(line for line in lines if line.startswith("| low "))
    assert header.split("|")[-2].strip() == "kills" and low.split("|")[-2].strip() == "1.5 [0.0, 7.9]"
    assert results.load(study)["runs"][1]["episode/kills"][3:6] == [None, 2.0, 2.0]
    later = results.counted(dataclasses.replace(study, left_out=100))
    assert later["runs"][1]["episode/kills"][3:6] == [None, None, 2.0]


def test_cases_that_are_there_are_not_trained_again(tiny, tmp_path):
    assert run(dataclasses.replace(tiny, cases=tiny.cases[:1]), tmp_path) == 0
    assert program.run(tiny, str(tmp_path / "elsewhere"), 4) == 0
    names = {folder.name for folder in (tmp_path / "elsewhere" / "tiny").iterdir() if folder.is_dir()}
    assert len(names) == 4 and all("high" in name for name in names)
    found = json.loads((tmp_path / "tiny.json").read_text())
    assert len(found["runs"]) == 8
    # The stand-in names another commit, which is that of the runs and not of who collected them.
    assert {found["machines"][entry["machine"]]["commit"] for entry in found["runs"]} == {"of-the-run"}
    lost = found["runs"].pop(5)["name"]
    (tmp_path / "tiny.json").write_text(json.dumps(found))
    assert program.run(tiny, str(tmp_path / "again"), 4) == 0
    assert [folder.name for folder in (tmp_path / "again" / "tiny").iterdir() if folder.is_dir()] == [lost]
    assert len(json.loads((tmp_path / "tiny.json").read_text())["runs"]) == 8
    assert program.run(tiny, str(tmp_path / "nothing"), 4) == 0 and not (tmp_path / "nothing").exists()


def test_preparation_is_made_once(tiny, tmp_path, capfd):
    made = tmp_path / "made"
    (made / "goals").mkdir(parents=True)  # leftovers of a preparation that did not end
    command = "launch.collect_segments --policy random --root_env Catch-v0 --episodes 1 --directory"
    study = dataclasses.replace(tiny, prepared=str(made), prepare=(f"{command} {made}/segments",))
    program.prepare(study)
    assert (made / "segments" / "random.npz").exists() and not (made / "goals").exists()
    capfd.readouterr()
    program.prepare(study)
    assert capfd.readouterr().out == ""
    with pytest.raises(UserError, match="tiny: `python -m launch.no_such` failed"):
        program.prepare(dataclasses.replace(study, prepared=str(tmp_path), prepare=("launch.no_such",)))


def test_results_of_other_settings_are_not_added_to(tiny, tmp_path):
    one = dataclasses.replace(tiny, axes=("root_env=Catch-v0",), cases=tiny.cases[:1])
    assert run(one, tmp_path) == 0
    for other in ({"flags": f"{one.flags} --gamma 0.7"}, {"cases": ("low: --gamma 0.6",)}):
        with pytest.raises(UserError, match="was measured with other flags"):
            results.load(dataclasses.replace(one, **other))
    assert results.load(dataclasses.replace(one, cases=tiny.cases))["runs"]  # one more case


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"flags": "", "cases": [], "machines": [], "runs": []}'])
def test_damaged_results_are_refused(tiny, tmp_path, text):
    (tmp_path / "tiny.json").write_text(text)
    with pytest.raises(UserError, match="tiny.json: is damaged .*; restore or remove it"):
        results.load(tiny)


def test_runs_of_a_failing_sweep_are_added(tiny, tmp_path):
    assert run(dataclasses.replace(tiny, axes=("root_env=Catch-v0", "seed=13,1"), cases=()), tmp_path) == 1
    assert [run["seed"] for run in json.loads((tmp_path / "tiny.json").read_text())["runs"]] == [1]


@pytest.mark.parametrize("words", [["run"], ["run", "no_such_study"], ["runs"]])
def test_unknown_words_are_refused(words, capsys):
    assert program.main(["studies", *words]) == 2
    assert "the studies are ellm, ellm_long" in capsys.readouterr().err


def test_a_curve_s_end_is_its_last_tenth():
    curve = np.r_[np.full(4, np.nan), np.full(6, 0.9), np.zeros(30), np.full(10, 1.0)]
    assert estimates.end(np.r_[curve[:-5], [0, 0, 0, 0, 1]]) == pytest.approx(0.2)
    assert estimates.over_the_run(curve) == pytest.approx((6 * 0.9 + 10) / 46)


def test_intervals_cover_what_they_say():
    draws = np.random.default_rng(0).normal(3, 2, (1000, 2, 5))
    means = [estimates.mean(draw) for draw in draws[:, 0]]
    assert np.mean([estimate.low < 3 < estimate.high for estimate in means]) == pytest.approx(0.95, abs=0.02)
    between = [estimates.difference(first, second + 1) for first, second in draws]
    assert all(estimate.low < estimate.mean < estimate.high for estimate in between if estimate)
    assert np.mean([estimate.low < -1 < estimate.high for estimate in between if estimate]) == pytest.approx(
        0.95, abs=0.02
    )
    assert np.mean([estimate.p_value < 0.05 for estimate in between if estimate]) == np.mean(
        [not estimate.low < 0 < estimate.high for estimate in between if estimate]
    )
    assert estimates.mean([1, 2, 3, 4, 5])[:3] == pytest.approx(
        (3, 3 - 2.776 * 0.5**0.5, 3 + 2.776 * 0.5**0.5), abs=1e-3
    )
    assert estimates.mean([0.9, 1.0], (0, 1)).high == 1
    assert estimates.difference([1.0], [2.0, 3.0]) is None and estimates.difference([1.0] * 2, [2.0] * 2) is None


@pytest.mark.parametrize(
    "values, words",
    [
        ((0.9641, 0.953, 0.976), "0.964 [0.953, 0.976]"),
        ((12, 11.2, 12.7), "12.0 [11.2, 12.7]"),
        ((1234.5, 1000, 1500), "1234 [1000, 1500]"),
        ((0.3, 0.3, 0.3), "0.3"),
        ((2.5,), "2.5"),
    ],
)
def test_estimates_have_the_digits_that_their_interval_bears(values, words):
    assert estimates.Estimate(*values).shown() == words


def test_differences_are_marked_by_holm_s_correction():
    assert estimates.distinct([0.04, 0.001, 0.02, 0.03]) == [False, True, False, False]  # 0.05 / 4, then 0.05 / 3
    assert estimates.distinct([0.01, 0.013, 0.9]) == [True, True, False]
    assert estimates.distinct([]) == []
    normal = np.random.default_rng(0).normal(size=(400, 4, 2, 5))
    tables = [[estimate.p_value for x, y in table if (estimate := estimates.difference(x, y))] for table in normal]
    assert np.mean([any(estimates.distinct(table)) for table in tables]) == pytest.approx(0.045, abs=0.02)


def change(folder, study: Study, case: str, more: float) -> None:
    """Raises the returns of a case in a study's results, with a spread over its runs."""
    found = json.loads((folder / f"{study.name}.json").read_text())
    for index, entry in enumerate(found["runs"]):
        entry["mean_return"] = [(index % 3) / 100 + more * (entry["cell"]["case"] == case)] * 50
    (folder / f"{study.name}.json").write_text(json.dumps(found))


def test_main_contrasts_of_all_studies_are_corrected_together(tiny, tmp_path):
    study = dataclasses.replace(tiny, axes=("root_env=Catch-v0", "seed=1-3"))
    assert run(study, tmp_path) == 0
    change(tmp_path, study, "high", 0.03)
    text = page_of(study)
    assert "return at the end +0.030 [0.007, 0.053]\\*." in text
    assert text.count("\\*") == 1  # no mark in a table
    others = []
    for number in range(10):
        others.append(dataclasses.replace(study, name=f"none_{number}"))
        (tmp_path / f"none_{number}.json").write_text((tmp_path / "tiny.json").read_text())
        change(tmp_path, others[-1], "high", 0)
    found = effects.effects([study, *others])
    assert [len(found["tiny"]), len(found["none_9"])] == [1, 1] and not found["tiny"][0].is_distinct
    assert "\\*." not in page.pages([study, *others])["results/tiny.md"]


def test_contrast_is_of_its_task_and_summary(tiny, tmp_path):
    assert run(tiny, tmp_path) == 0
    found = json.loads((tmp_path / "tiny.json").read_text())
    for entry in found["runs"]:
        high = (entry["cell"]["case"] == "high") * (10 if entry["task"] == "Catch-v0" else 1)
        entry["mean_return"] = [2.0 * high + entry["seed"] / 100] * 25 + [high + entry["seed"] / 100] * 25
    (tmp_path / "tiny.json").write_text(json.dumps(found))
    about = {}
    for task in ("", "BabyAI-Text-GoToLocal-RedBall-S20"):
        for summary in (base.AT_THE_END, base.OVER_THE_RUN):
            contrast = Contrast("high", "low", task=task, summary=summary)
            (effect,) = effects.effects([dataclasses.replace(tiny, contrasts=(contrast,))])["tiny"]
            about[task, summary] = round(effect.estimate.mean, 3)
    assert list(about.values()) == [10, 15, 1, 1.5]


def test_contrast_of_held_out_episodes_is_paired(tiny, tmp_path):
    contrast = Contrast("all goals, under a", "all goals, under b", "kills", held_out=True)
    study = dataclasses.replace(tiny, contrasts=(contrast,))
    assert effects.effects([study]) == {"tiny": []} and "Not measured yet" in page_of(study)
    kills = {"a": [1.1, 5.0, 9.2], "b": [1.0, 5.1, 9.0]}
    played = {f"all goals, under {goal}": [{"kills": x} for x in values] for goal, values in kills.items()}
    study.episodes_path.write_text(json.dumps(played))
    (effect,) = effects.effects([study])["tiny"]
    assert effect.estimate.shown() == "0.07 [-0.31, 0.45]"  # far narrower than of two samples
    assert "kills on held-out episodes +0.07 [-0.31, 0.45]" in page_of(study)


def test_page_has_a_table_of_held_out_episodes(tiny, tmp_path):
    study = dataclasses.replace(tiny, played={"kills": "kills", "length": "steps"})
    assert run(study, tmp_path) == 0 and "on held-out episodes" not in page_of(study)
    played = {"under a": [{"kills": 1.0, "length": 2.0}, {"kills": 3.0, "length": 2.0}], "high": [{"kills": 0.0}]}
    study.episodes_path.write_text(json.dumps(played))
    text = page_of(study)
    assert cells(text, "on held-out episodes") == ["on held-out episodes", "kills", "steps"]
    assert cells(text, "under a") == ["under a", "2 [0, 15]", "2"]
    assert cells(text, "a high one") == ["a high one", "0", ""]


def test_page_says_what_was_not_run(tiny, tmp_path):
    study = dataclasses.replace(tiny, axes=("root_env=Catch-v0", "seed=1-3"))
    new = dataclasses.replace(study, answer="")
    assert "**Not run yet.**" in page_of(new) and figures.figure(new) is None
    assert "| Not run yet. |  |  |" in page.pages([new])["results.md"]
    assert run(study, tmp_path) == 0
    more = dataclasses.replace(study, cases=(*study.cases, "higher: --gamma 0.99"))
    assert "Not measured yet: `higher` (3 runs)." in page_of(more)
    more = dataclasses.replace(more, axes=tiny.axes)
    elsewhere = "on `BabyAI-Text-GoToLocal-RedBall-S20` (2 runs)"
    assert f"Not measured yet: `low` {elsewhere}, `high` {elsewhere}, `higher` on `Catch-v0` (2 runs)" in page_of(more)


def test_page_says_when_its_contrast_was_named(tiny):
    later = dataclasses.replace(tiny, contrasts=(Contrast("high", "low", beforehand=False),))
    assert "The main contrast was named before the runs." in page_of(tiny)
    assert "The main contrast was named after the runs." in page_of(later)


def test_all_runs_may_be_made_again_apart(tiny, tmp_path, capsys):
    study = dataclasses.replace(tiny, axes=("root_env=Catch-v0", "seed=1-2"))
    assert run(study, tmp_path) == 0
    before = (tmp_path / "tiny.json").read_bytes()
    for num_added in (4, 0):
        assert program.run_again(study, str(tmp_path / "runs"), 4) == 0
        shown = capsys.readouterr().out
        assert f"{num_added} runs added to {tmp_path}/runs/again/tiny.json" in shown
        assert cells(shown, "high")[1] == "2 [-4, 9]"
    assert (tmp_path / "tiny.json").read_bytes() == before
    assert len(json.loads((tmp_path / "runs" / "again" / "tiny.json").read_text())["runs"]) == 4


def test_the_smallest_study_s_command_trains_and_goes_on(tiny, tmp_path, capsys, monkeypatch):
    study = program.STUDIES["catch_judge"]
    short = dataclasses.replace(study, flags=study.flags.replace("_steps 120000", "_steps 500"), axes=("seed=1",))
    monkeypatch.setitem(program.STUDIES, study.name, short)
    of_study = page.FOLDER_OF_PAGES / f"{study.name}.md"
    line = next(line for line in commands(of_study) if f"run {study.name} --jobs 2 --again" in line)
    for num_added in (2, 0):
        with flagsaver.flagsaver():
            rest = flags.FLAGS([*shlex.split(line, comments=True)[2:], f"--train_dir={tmp_path}"])
            assert program.main(rest) == 0
        shown = capsys.readouterr().out
        assert f"{num_added} runs added to" in shown and "500 steps, 1 seed:" in shown and cells(shown, "judge")


def test_a_complete_study_makes_nothing(tiny, tmp_path):
    study = dataclasses.replace(tiny, axes=("root_env=Catch-v0", "seed=1-2"))
    assert run(study, tmp_path) == 0
    assert run(dataclasses.replace(study, prepared=str(tmp_path / "no"), prepare=("launch.no_such",)), tmp_path) == 0
