"""A run's report: what is in it, and that a browser shows it without a network."""

import html.parser
import io
import json
import os
import pathlib

import pytest
from PIL import Image

from launch import report
from oni_jax.annotation.prompts import escape
from oni_jax.settings.fields import with_values
from oni_jax.show.report.report import page_template
from tests.evaluation.test_inspection import settings_of, write_counts, write_run
from tests.show.report.chromium import open_page
from tests.show.report.runs import learning

HOSTILE = b'</span></table><script>console.error(1)</script><img src="http://127.0.0.1:9/x.png" onerror=alert(1)>'
MESSAGES = {HOSTILE: 3, b"You find gold.": 2, bytes(range(1, 256)): 1, b"": 9}
NAME = 'run & <b>bold "quoted" $x_1$'


def player(name: str) -> dict[str, object]:
    measure = {
        "mean": 12.345,
        "interval": [10.0, 1234.5],
        "median": 12.0,
        "quantiles": {"0.05": 1.0, "0.25": 2.0, "0.75": 3.0, "0.95": 4.0},
    }
    return {
        "player": name,
        "policy": "greedy",
        "root_env": "NetHackScore-v1",
        "seed": 1,
        "max_episode_steps": 5000,
        "num_episodes": 2,
        "complete": False,
        "episodes": [{"index": 0}],
        "measures": {"return": measure, "depth": {**measure, "interval": None}},
        "ends": {"death": {"count": 1, "fraction": 1.0, "interval": [0.2, 1.0]}},
        "success": {"count": 0, "fraction": 0.0, "interval": [0.0, 0.79]},
    }


def evaluation() -> dict[str, object]:
    difference = {"return": {"mean": -1.5, "interval": [-3.0, 0.25]}}
    between = {"first": "agent <i>", "second": "random policy", "num_episodes": 1, "measures": difference}
    return {"evaluations": [player("agent <i>")], "other": player("random policy"), "differences": [between]}


MP4 = b"\0\0\0\x10ftypbytes"  # beginning of a file


def gif(num_frames: int = 3) -> bytes:
    frames = [Image.new("RGB", (640, 240), (40 * i, 0, 0)) for i in range(num_frames)]
    file = io.BytesIO()
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:])
    return file.getvalue()


def write_experiment(folder: pathlib.Path, name: str = "run", **settings: object) -> pathlib.Path:
    """A run with a checkpoint, hostile messages and rows of metrics."""
    config = with_values(settings_of(folder, "cosine-bow"), {"experiment": name, **settings})
    write_run(folder / name, config)
    write_counts(folder / name, MESSAGES)
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in learning(1)))
    return folder / name


def made(folder: pathlib.Path, name: str = "run", *words: str) -> int:
    return report.main(["--train_dir", str(folder), "--experiment", name, *words])


@pytest.fixture
def no_figures(monkeypatch):
    """They take seconds."""
    monkeypatch.setattr("oni_jax.show.report.report.FIGURES", {})


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> pathlib.Path:
    """A report of all that there can be, with hostile text wherever a run has text."""
    folder = tmp_path_factory.mktemp("reports")
    run = write_experiment(folder, NAME, goal="gold <script>console.error(2)</script>")
    (run / "evaluation.json").write_text(json.dumps(evaluation()))
    (run / "recordings").mkdir()
    (run / "recordings" / "best1-a.gif").write_bytes(gif())
    assert made(folder, NAME, "--html", str(folder / "report.html")) == 0
    return folder / "report.html"


def test_a_browser_shows_it_without_a_network(page):
    seen = open_page(str(page))
    assert seen.requests == [] and seen.complaints == []
    assert len(seen.pictures) == 8 and min(min(size) for size in seen.pictures) > 100
    assert seen.pictures[0] == (640, 240)  # the film comes first
    assert "script" not in seen.elements
    assert seen.width <= 800  # wider parts scroll by themselves
    says = (NAME, escape(HOSTILE), "agent <i> minus random policy", "[10, 1,234]", "20.0% to 100.0%")
    for text in (*says, "policy greedy", "the same 1 episodes; PARTIAL: short episodes"):
        assert text in seen.text
    assert "--goal" in seen.text and "jaxlib" in seen.text
    assert seen.title == f"{NAME}, Catch-v0"


def test_film_and_figures_of_merit_come_before_diagnostics(page):
    text = page.read_text()
    order = ["recording best1-a.gif", "<h2>Evaluation", "<h2>Captions", "<h2>Curves", 'alt="return of']
    order += ["<details><summary>Diagnostics: goals, labels, reward model, speed", 'alt="goals of', 'alt="speed of']
    places = [text.index(words) for words in [*order, "</details>", "<h2>Settings"]]
    assert places == sorted(places)
    assert "return of random play" in text and "-0.5703" in text


def test_the_browser_sees_what_must_not_be(tmp_path):
    """The test above can fail."""
    content = (
        '<img src="http://127.0.0.1:9/x.png"><img src="data:image/png;base64,AAAA"><script>console.error(1)</script>'
    )
    (tmp_path / "bad.html").write_text(f"<!doctype html><title>x</title>{content}")
    seen = open_page(str(tmp_path / "bad.html"))
    assert seen.requests == ["http://127.0.0.1:9/x.png"] and "script" in seen.elements
    assert any("console" in text or '"error"' in text for text in seen.complaints)
    assert [width for width, _ in seen.pictures] == [0, 0]


@pytest.mark.usefixtures("no_figures")
def test_the_policy_in_the_page_stops_what_is_left_unescaped(tmp_path):
    bad = "<script>document.title = 'run'</script><img src='http://127.0.0.1:9/x.png'>"
    run = write_experiment(tmp_path, "kept")
    assert made(tmp_path, "kept") == 0
    text = (run / "report.html").read_text()
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text
    assert text.index("Content-Security-Policy") < text.index("<title>")  # it binds what comes after it
    (tmp_path / "bad.html").write_text(text.replace("</h1>", f"</h1>{bad}"))
    seen = open_page(str(tmp_path / "bad.html"))
    assert seen.title == "kept, Catch-v0" and len(seen.complaints) >= 2


def test_text_is_escaped_wherever_it_stands():
    template = page_template().environment.from_string('<p title="{{ x }}">{{ x }}</p>')
    assert template.render(x="<b>&'\"") == '<p title="&lt;b&gt;&amp;&#39;&#34;">&lt;b&gt;&amp;&#39;&#34;</p>'
    assert template.render(x="a\x00\u202e\ud800b").count("a\\x00\\u202e\\ud800b") == 2


def test_no_text_of_a_run_becomes_an_element(page):
    class Elements(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.seen, self.depth = set(), 0

        def handle_starttag(self, tag, attrs):
            self.seen.add((tag, *(name for name, _ in attrs if name.startswith("on"))))
            self.depth += tag not in ("img", "meta", "link")

        def handle_endtag(self, tag):
            self.depth -= 1

    parsed = Elements()
    parsed.feed(page.read_text())
    allowed = "html head meta link title style body h1 h2 h3 p div b span figure figcaption img details summary"
    allowed += " table thead tbody tr th td"
    assert parsed.seen == {(tag,) for tag in allowed.split()} and parsed.depth == 0


@pytest.mark.usefixtures("no_figures")
def test_missing_part_is_named_with_the_command_that_makes_it(tmp_path, capsys):
    run = write_experiment(tmp_path)
    assert made(tmp_path) == 0
    assert capsys.readouterr().out.startswith(f"{run}/report.html: 0.")
    text = (run / "report.html").read_text()
    assert f"launch.evaluate --train_dir {tmp_path} --experiment run --json" in text and "--record 1" in text
    assert "You find gold." in text and "(no message)" in text


@pytest.mark.usefixtures("no_figures")
def test_a_run_without_a_reward_to_inspect(tmp_path):
    folder = tmp_path / "run"
    write_experiment(tmp_path)
    config = (
        (folder / "config.json").read_text().replace('"cosine-bow"', '"none"').replace('_coeff": 0.1', '_coeff": 0.0')
    )
    (folder / "config.json").write_text(config)
    assert made(tmp_path) == 0
    assert "llm_reward_type is none, so there is nothing to inspect" in (folder / "report.html").read_text()


@pytest.mark.usefixtures("no_figures")
def test_the_headline_says_who_made_the_labels(tmp_path):
    write_run(tmp_path / "run", settings_of(tmp_path, "online_cls", llm_server_addr="node1:9001", llm_model="<b>"))
    (tmp_path / "run" / "metrics.jsonl").write_text(json.dumps(learning(1)[0]) + "\n")
    assert made(tmp_path) == 0
    headline = (tmp_path / "run" / "report.html").read_text().partition("</h1>")[2].partition("</p>")[0]
    assert headline.endswith("seed 1, labels by: rule-based judge, not an LLM")  # the store's


@pytest.mark.usefixtures("no_figures")
def test_recordings_the_best_first_a_film_before_its_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr("oni_jax.show.report.report.MAX_RECORDING_BYTES", 5000)
    folder = write_experiment(tmp_path) / "recordings"
    folder.mkdir()
    for name in ("worst1-a.gif", "best1-a.gif", "best1-a.mp4"):
        (folder / name).write_bytes(MP4)
    (folder / "best2-a.gif").write_bytes(bytes(5001))
    assert made(tmp_path, "run", "--num_recordings", "2") == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert '<video src="data:video/mp4;base64,AAAAEGZ0eXBieXRlcw=="' in text
    assert "best1-a.gif" not in text and "worst1" not in text
    assert "best2-a.gif is left out: it is larger than" in text


@pytest.mark.usefixtures("no_figures")
def test_recordings_of_this_run_come_before_other_runs(tmp_path):
    folder = write_experiment(tmp_path) / "recordings"
    folder.mkdir()
    for name in ("best1-NetHackScore-v1-random-seed1-episode0.gif", "worst1-run-NetHackScore-v1-sample-640.gif"):
        (folder / name).write_bytes(b"bytes")
    assert made(tmp_path) == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert "worst1-run" in text and "-random-" not in text


@pytest.mark.usefixtures("no_figures")
def test_newest_recording_of_a_rank_comes_first(tmp_path):
    folder = write_experiment(tmp_path) / "recordings"
    folder.mkdir()
    for age, name in enumerate(("median1-run-a-600.gif", "best1-run-a-300.gif", "best1-run-a-1200.gif")):
        (folder / name).write_bytes(b"bytes")
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    assert made(tmp_path) == 0
    text = (tmp_path / "run" / "report.html").read_text()
    assert "best1-run-a-300" in text and "best1-run-a-1200" not in text


@pytest.mark.parametrize(
    "words, told",
    [
        (("--experiment", "other"), "other/config.json can't be read"),
        (("--experiment", "empty"), "holds no rows yet"),
        (("--evaluation", "/nowhere.json"), "--evaluation /nowhere.json: can't be read"),
        (("--evaluation", "{folder}/run/config.json"), "not what launch.evaluate --json writes"),
        (("--html", "/nowhere/x.html"), "--html /nowhere/x.html: there is no folder /nowhere"),
        (("--html", "{folder}/link.html"), "link.html: is no regular file"),
        (("--dataset_dir", "/nowhere"), "/nowhere"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, words, told):
    write_experiment(tmp_path)
    write_experiment(tmp_path, "empty").joinpath("metrics.jsonl").write_text("")
    tmp_path.joinpath("link.html").symlink_to("elsewhere")
    assert made(tmp_path, "run", *(word.format(folder=tmp_path) for word in words)) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
