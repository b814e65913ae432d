"""Codes of terminals in names of runs, tasks and models reach no terminal and no stream."""

import io
import os
import pathlib
import sys

import pytest

from launch import ls, plot
from oni_jax.host.printing import Escaping, unescaped
from oni_jax.show.live.screen import Printed
from tests.show.report.runs import learning, write_run
from tests.support.processes import COMPILES_SOON
from tests.support.pseudoterminal import Pseudoterminal
from tests.support.trials import trial

CODES = ["\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "back\x08\x08", "over\rwritten", "two\nlines", "\u202eleft"]
CATCH = (
    "--root_env=Catch-v0 --encoder_custom=mlp_encoder --llm_reward_type=none --num_workers=1 --hidden_size=8 "
    "--num_envs_per_worker=4 --batch_size=64 --rollout=8 --recurrence=8 --train_for_env_steps=128 --log_every_sec=0.1"
).split()


def is_plain(text: str) -> bool:
    return all(x.isprintable() or x == "\n" for x in text)


def write_named(tmp_path: pathlib.Path, code: str) -> pathlib.Path:
    """The folder of a run in whose names the code stands."""
    return write_run(tmp_path / f"a{code}b", learning(0), root_env=code, llm_model=code, llm_reward_type="online_cls")


@trial("codes of a terminal")
@pytest.mark.parametrize("code", CODES)
def test_run_s_name_and_model_are_escaped_by_programs(code, tmp_path, capfd):
    folder = write_named(tmp_path, code)
    before = sys.stdout, sys.stderr
    ls.main([str(tmp_path)])
    plot.main([str(folder / "missing")])
    assert (sys.stdout, sys.stderr) == before
    out, err = capfd.readouterr()
    assert "a" in out and is_plain(out) and is_plain(err)
    assert out.splitlines()[1].startswith("a" + code.encode("unicode_escape").decode()[:3])


@trial("codes of a terminal")
def test_run_s_name_is_escaped_where_it_is_plotted(tmp_path, capfd):
    plot.main([str(write_named(tmp_path, "".join(CODES))), "--plots_dir", str(tmp_path / "plots")])
    out, err = capfd.readouterr()
    assert [*(tmp_path / "plots").rglob("*.png")] and is_plain(out) and is_plain(err)


def test_escaped_stream_gives_the_other_to_what_draws():
    stream = io.StringIO()
    escaping = Escaping(stream)
    print("\x1b[31mred\ttab", file=escaping)
    assert stream.getvalue() == "\\x1b[31mred\ttab\n" and not escaping.isatty()
    assert unescaped(escaping) is stream and unescaped(stream) is stream


@trial("codes of a terminal")
def test_line_above_the_live_view_is_escaped():
    lines = []
    print("\x1b[31mred\x07", file=Printed(io.StringIO(), lines.append))
    assert lines == ["\\x1b[31mred\\x07"]


class Terminal(Pseudoterminal):
    seen = b""

    def take(self, data: bytes) -> None:
        self.seen += data


@trial("codes of a terminal")
@pytest.mark.slow
@pytest.mark.parametrize("term", ["", "xterm-256color"])
def test_run_with_codes_in_its_name_sends_none_of_them_to_its_terminal(term, tmp_path):
    terminal = Terminal(100, 30)
    words = [*CATCH, f"--train_dir={tmp_path}", f"--experiment={CODES[0]}"]
    environment = {**os.environ, **COMPILES_SOON, "TERM": term, "JAX_PLATFORMS": "cpu"}
    terminal.run([sys.executable, "-m", "launch.train", *words], environment)
    assert terminal.ended() == 0 and (tmp_path / CODES[0] / "summary.json").exists()
    errors = terminal.process.stderr.read() if terminal.process.stderr else b""
    assert b"\\x1b[31mred" in terminal.seen and CODES[0].encode() not in terminal.seen + errors
