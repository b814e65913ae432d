"""Tables that fit, files that can be read back."""

import csv
import io
import json

import pytest

from oni_jax.evaluation.episodes import Episode
from oni_jax.evaluation.files import as_csv, as_json
from oni_jax.evaluation.report import difference_lines, lines, number
from oni_jax.evaluation.results import Evaluation, differences
from oni_jax.settings.fields import UserError
from oni_jax.show.report.evaluation_table import evaluation_parts
from tests.support.trials import trial

NAMES = ("return", "length", "dlvl", "gold", "xlvl", "scout", "kills", "end_status", "turns")
ENDS = {1: "death", -1: "step limit", 2: "goal"}


def episode(index: int, returned: float, status: int = 1) -> Episode:
    values = (returned, 1000.0 + index, 2.0, 12345.0, 1.0, 321.0, 0.5, float(status), 4321.0)
    return Episode(index, dict(zip(NAMES, values)), b"\x01" * 3, ENDS[status])


def evaluation(episodes, player="run at 1,000 steps", num_episodes=0, **values) -> Evaluation:
    of = Evaluation(
        player, "run", 1000, "sample", "NetHackStaircase-v1", 5000, 1, num_episodes or len(episodes), episodes
    )
    return of._replace(**values)


GOOD = evaluation([episode(0, 50.0, 2), episode(1, 0.0, -1), episode(2, 50.0, 2), episode(3, 0.0)])
BAD = evaluation([episode(i, 0.0) for i in range(4)], player="another run with quite a long name at 12,345,678 steps")


@pytest.mark.parametrize("width", [40, 41, 60, 79, 100, 200])
def test_no_line_is_wider_than_the_terminal(width):
    text = [*lines(GOOD, width), *lines(BAD, width), *difference_lines(GOOD, BAD, width)]
    assert max(map(len, text)) <= width
    words = " ".join(" ".join(text).split())
    for expected in ("explored squares", "experience level", "goal 50.0 %, death 25.0 %, step limit 25.0 %", "12,345"):
        assert expected in words


def test_a_wide_table_has_a_line_a_measure():
    row = next(line for line in lines(GOOD, 120) if line.startswith("return"))
    assert row.split() == ["return", "25", "[0,", "50]", "0", "0", "25", "50", "50"]


def test_achievements_are_reported_by_their_rates_and_their_score():
    stats = [{"return": 1.0, "length": 9.0, "wood": float(i < 3), "coal": float(i < 1)} for i in range(4)]
    of = evaluation([Episode(i, x, b"", "death") for i, x in enumerate(stats)], achievements=("wood", "coal"))
    score = of.score()
    assert score and score.value == pytest.approx((76 * 26) ** 0.5 - 1)  # 75 % and 25 %
    assert score.interval and 0 <= score.interval.low < score.value < score.interval.high <= 100
    assert {name: rate.fraction for name, rate in of.achievement_rates().items()} == {"wood": 0.75, "coal": 0.25}
    assert set(of.summaries()) == {"return", "length"}
    text = lines(of, 120)
    assert any(line.split()[:3] == ["wood", "75.0", "%"] for line in text)
    assert any(line.startswith("score: 43.5 %") for line in text) and max(map(len, lines(of, 40))) <= 40
    tree = json.loads(as_json([of], None))["evaluations"][0]
    assert tree["score"]["value"] == score.value and tree["achievements"]["coal"]["count"] == 1
    assert evaluation([episode(0, 1.0)]).score() is None
    alone = evaluation([Episode(0, stats[0], b"", "death")], achievements=("wood", "coal")).score()
    assert alone == (pytest.approx(100), None)


def test_the_difference_is_that_of_pairs():
    shuffled = BAD._replace(episodes=BAD.episodes[1:])  # as after an interruption
    num_common, found = differences(GOOD, shuffled)
    assert num_common == 3
    assert found["return"].mean == pytest.approx(50 / 3)
    assert found["success"].mean == pytest.approx(1 / 3)
    assert found["length"] == (0.0, (0.0, 0.0))
    none = differences(BAD, BAD)[1]["success"]  # four episodes each: it may be that something differs
    assert none.interval and none.interval.low < -0.3 < 0.3 < none.interval.high
    assert differences(GOOD, BAD._replace(episodes=[episode(9, 0.0)])) == (0, {})


def test_partial_evaluation_says_so_everywhere():
    partial = GOOD._replace(num_episodes=64, interrupted="SIGINT")
    assert "PARTIAL: 4 of 64 episodes (SIGINT); short episodes end first" in " ".join(lines(partial, 500))
    assert "PARTIAL" in " ".join(difference_lines(GOOD, partial, 500))
    assert "PARTIAL" not in " ".join(lines(GOOD, 500) + difference_lines(GOOD, BAD, 500))
    assert json.loads(as_json([partial], None))["evaluations"][0]["complete"] is False
    assert {row["complete"] for row in csv.DictReader(io.StringIO(as_csv([partial])))} == {"0"}


def test_success_is_only_told_of_tasks_with_a_goal():
    assert "success: 50.0 % [15.0, 85.0], 2 of 4" in lines(GOOD, 80)
    score = GOOD._replace(root_env="NetHackScore-v1")
    assert not any("success" in line for line in lines(score, 80) + difference_lines(score, score, 80))
    assert json.loads(as_json([score], None))["evaluations"][0]["success"] is None


def rooms(*successes: bool) -> Evaluation:
    """Episodes of an environment that says of each whether it succeeded."""
    stats = [{"return": 0.5 * x, "length": 10.0 * (i + 1), "success": float(x)} for i, x in enumerate(successes)]
    episodes = [Episode(i, values, b"", "finished") for i, values in enumerate(stats)]
    return evaluation(episodes, root_env="BabyAI-Text-GoToLocal-RedBall-S20")


def test_success_is_a_rate_and_its_steps_are_those_of_successful_episodes():
    of, none = rooms(True, False, True, True), rooms(*[False] * 4)
    assert of.summaries()["steps to success"].mean == pytest.approx((10 + 30 + 40) / 3)
    text = lines(of, 120)
    assert "success: 75.0 % [30.1, 95.4], 3 of 4" in text and any(
        x.split()[:4] == ["steps", "to", "success", "26.7"] for x in text
    )
    assert not any(line.startswith("success ") for line in text)  # no measure, whose interval would be [0, 0] here:
    assert "success: 0.0 % [0.0, 49.0], 0 of 4" in lines(none, 120) and "steps to success" not in none.summaries()
    found = differences(of, none)[1]
    assert found["success"].mean == 0.75 and "steps to success" not in found
    tree = json.loads(as_json([of], None))["evaluations"][0]
    assert tree["success"]["count"] == 3 and tree["measures"]["steps to success"]["median"] == 30
    assert [row["success"] for row in csv.DictReader(io.StringIO(as_csv([of])))] == ["1", "0", "1", "1"]


def test_json_holds_everything():
    tree = json.loads(as_json([GOOD, BAD], BAD))
    found = tree["evaluations"][0]
    assert found["measures"]["return"]["mean"] == 25 and found["measures"]["return"]["quantiles"]["0.95"] == 50
    assert found["success"]["count"] == 2 and found["ends"]["goal"]["fraction"] == 0.5
    assert [row["return"] for row in found["episodes"]] == [50, 0, 50, 0]
    assert [row["success"] for row in found["episodes"]] == [1, 0, 1, 0]
    assert tree["differences"][0]["measures"]["return"]["mean"] == 25
    assert tree["differences"][1]["measures"]["return"] == {"mean": 0, "interval": [0, 0]}
    assert tree["other"]["player"] == BAD.player and tree["versions"]["nle"]


@trial("evaluation damaged")
def test_changed_digit_of_an_evaluation_is_noticed(tmp_path):
    path, text = tmp_path / "evaluation.json", as_json([GOOD, BAD], BAD)
    path.write_text(text)
    assert len(evaluation_parts(str(path))) == 5
    for damaged in (text.replace('"mean": 25.0', '"mean": 95.0'), text[:-5], "[" * 100_000, text.replace("25", "NaN")):
        path.write_text(damaged)
        with pytest.raises(UserError, match="is damaged, or not what launch.evaluate --json writes"):
            evaluation_parts(str(path))
    tree = json.loads(text)
    del tree["checksum"]  # as an earlier version wrote it
    path.write_text(json.dumps(tree))
    assert len(evaluation_parts(str(path))) == 5


def test_csv_has_a_row_an_episode():
    rows = list(csv.DictReader(io.StringIO(as_csv([GOOD, BAD]))))
    assert len(rows) == 8
    assert (
        rows[1] | {"index": "1", "return": "0.0", "end": "step limit", "success": "0", "env_steps": "1000"} == rows[1]
    )


def test_numbers_have_no_exponent():
    values = (0, 1, 0.1234, -0.1234, 1.234, 12.34, 123.4, 1234567.8, 1e-9)
    assert [number(x) for x in values] == "0 1 0.123 -0.123 1.23 12.3 123 1,234,568 0.000".split()
