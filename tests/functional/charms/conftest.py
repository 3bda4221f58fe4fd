"""Packs for the tests here: packing takes a while, so that all of them share it."""

from __future__ import annotations

import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.charms.packing import OF_BASE, clone, find_python, packed


@pytest.fixture(scope="session")
def checkout() -> Iterator[Path]:
    with clone() as into:
        yield into


@pytest.fixture(scope="session")
def packs(checkout: Path) -> dict[str, Path]:
    return packed(checkout, "--arch", "amd64")


@pytest.fixture(scope="session")
def runnable(packs: dict[str, Path], checkout: Path) -> tuple[dict[str, Path], Path]:
    """Packs that a Python of this machine runs, and that Python: the base's, or else this one and packs for it."""
    own = platform.machine() == "x86_64"
    if own and (python := find_python(OF_BASE)) is not None:
        return packs, python
    # The distribution's: another one of its version would take the distribution's modules in /lib for its own.
    distributed = Path("/usr/bin/python3").resolve()
    python = distributed if distributed.exists() else Path(sys.executable).resolve()
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True).stdout.strip()
    warnings.warn(f"no Python {OF_BASE} for amd64 here: tried are packs for Python {version}", stacklevel=1)
    return packed(checkout, "--for-python", version), python
