"""What `tippingpoint --version` says in a checkout, and elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tippingpoint import __version__
from tippingpoint.cli.program import main
from tippingpoint.cli.version import full_version


def git(root: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    done = subprocess.run(
        ["git", "-C", root, *author, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_an_installed_package_has_its_version_alone(tmp_path: Path) -> None:
    assert full_version(tmp_path) == __version__


def test_a_checkout_has_the_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "All")
    git(tmp_path, "tag", "v9.9.9")
    commit = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert full_version(tmp_path) == f"{__version__} (commit {commit})"
    (tmp_path / "file").write_text("changed")
    assert full_version(tmp_path) == f"{__version__} (commit {commit}, with changes)"


def test_what_git_cannot_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("nonsense")
    assert full_version(tmp_path) == __version__


def test_the_program_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(rf"tippingpoint {re.escape(__version__)}( \(commit .*\))?\n", capsys.readouterr().out)
