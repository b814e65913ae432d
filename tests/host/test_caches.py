"""The folder of caches, with and without a home."""

import os

import pytest

from oni_jax.host.caches import cache_folder
from oni_jax.settings.fields import UserError


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    cache_folder.cache_clear()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield tmp_path / "temporary"
    cache_folder.cache_clear()


def test_cache_is_in_the_home(temporary, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(temporary / "home"))
    assert cache_folder() == str(temporary / "home/.cache/oni_jax") and os.path.isdir(cache_folder())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("home", ["/dev/null", "/proc", None])
def test_cache_without_a_home_is_in_the_temporary_folder(temporary, monkeypatch, capsys, home):
    """None: no variable, and a user without an entry."""
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    else:
        monkeypatch.setenv("HOME", home)
    assert cache_folder() == cache_folder() == str(temporary / f"oni_jax_cache_{os.getuid()}")
    assert os.stat(cache_folder()).st_mode & 0o077 == 0
    assert capsys.readouterr().out.count("can't be written") == 1


def test_link_in_the_temporary_folder_is_refused(temporary, monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null")
    (temporary / "strange").mkdir()
    (temporary / f"oni_jax_cache_{os.getuid()}").symlink_to(temporary / "strange")
    with pytest.raises(UserError, match=r"set \$XDG_CACHE_HOME"):
        cache_folder()
