"""Long work is shown where a person sees it: here a terminal or a file; for the view see test_terminal.py."""

import sys

from tests.support.pseudoterminal import Pseudoterminal

PROGRAM = (
    "import time\n"
    "from oni_jax.host.progress import tracked\n"
    "for item in tracked(range(3), 'making maps', 3):\n"
    "    time.sleep(0.6)\n"
    "print('made')"
)


class Terminal(Pseudoterminal):
    seen = b""

    def take(self, data: bytes) -> None:
        self.seen += data


def test_terminal_s_last_line_says_how_far_it_is_and_is_erased():
    terminal = Terminal(80, 24)
    terminal.run([sys.executable, "-c", PROGRAM])
    assert terminal.ended() == 0
    _, *shown, last = terminal.seen.decode().split("\r\x1b[K")
    assert shown[0] == "making maps: 0 of 3" and shown[1].startswith("making maps: 1 of 3, 1 s left")
    assert last == "made\r\n"
    terminal.close()


def test_file_gets_one_line(capfd):
    from oni_jax.host.progress import tracked

    assert [*tracked(iter("abc"), "making maps", 3)] == ["a", "b", "c"]
    assert capfd.readouterr().out == "making maps\n"
