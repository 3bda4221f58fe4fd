"""Packs of this checkout for the tests here: made once, elsewhere, and run by a Python of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.functional.program import CHECKOUT

ROOT = CHECKOUT
OF_BASE = "3.12"
"""The version of Python that the base has on which the bundle deploys, Ubuntu 24.04."""
OF_LATER = "3.14"
"""The version of Python that Ubuntu 26.04 has."""


@contextmanager
def clone() -> Iterator[Path]:
    """The files of this checkout that git knows or would take, elsewhere; what was fetched is shared."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory() as name:
        into = Path(name)
        for file in files:
            if file and (ROOT / file).exists():
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, into / file)
        (ROOT / ".cache").mkdir(exist_ok=True)
        (into / ".cache").symlink_to(ROOT / ".cache")
        yield into


def run_pack(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [checkout / "scripts" / "pack", *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, env=os.environ | environment)


def packed(checkout: Path, *arguments: str, **environment: str) -> dict[str, Path]:
    """Packs; what was made, by charm."""
    done = run_pack(checkout, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    made = [checkout / line for line in done.stdout.splitlines()]
    return {path.name.partition("_")[0]: path for path in made}


def find_python(version: str) -> Path | None:
    """A Python of a version on this machine, whoever installed it."""
    places = [*(Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"), *map(Path, os.get_exec_path())]
    for place in places:
        python = place / f"python{version}"
        if python.exists():
            found = subprocess.run(
                [python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
            )
            if found.returncode == 0 and found.stdout.strip():
                return Path(found.stdout.strip()).resolve()
    return None
