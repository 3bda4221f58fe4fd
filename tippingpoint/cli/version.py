"""The version of the program, with the commit where it runs from a checkout."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tippingpoint


class ShowVersion(argparse.Action):
    """Prints the version, and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the version; git is called only now."""
        print(f"tippingpoint {full_version(Path(tippingpoint.__file__).parents[1])}")
        parser.exit()


def full_version(root: Path) -> str:
    """Return the version of the package in a folder, such as "0.1.0 (commit 1a2b3c4, with changes)" in a checkout."""
    if not (root / ".git").exists():
        return tippingpoint.__version__
    import subprocess  # here, because every other command would wait for it

    command = ["git", "-C", root, "describe", "--always", "--exclude=*", "--dirty=, with changes"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout that is somebody else's
        return tippingpoint.__version__
    return f"{tippingpoint.__version__} (commit {found.stdout.strip()})"
