from pathlib import Path

import pytest

from jetjobs.cli import demo
from jetjobs.cli.failures import Mistake


def installed_elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As from a wheel: no checkout around the package."""
    monkeypatch.setattr(demo, "__file__", str(folder / "lib" / "site-packages" / "jetjobs" / "cli" / "demo.py"))


def test_without_the_sources_it_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    installed_elsewhere(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match="get the sources and run `make demo`"):
        demo.find_example()


def test_installed_it_finds_the_checkout_it_is_called_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    installed_elsewhere(monkeypatch, tmp_path)
    example = tmp_path / "checkout" / "examples" / "file_index"
    example.mkdir(parents=True)
    (example / "file_index.py").touch()
    monkeypatch.chdir(example.parent)
    assert demo.find_example() == example
