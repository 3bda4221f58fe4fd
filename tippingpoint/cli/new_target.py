"""`tippingpoint new-target`: make the skeleton of a package that brings a new kind of target.

It is the documentation's example under another name: it works at once, and its parts are replaced one by one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import kinds
from tippingpoint.util.exit_codes import MET

_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")
_PLACES = (
    Path(__file__).with_name("example_target"),  # in a wheel
    Path(__file__).parents[2] / "docs/how-to/example-target",  # in a checkout
)


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    name: str = options.name
    if not _NAME.fullmatch(name):
        raise UserError("NAME", name, "a small letter, then small letters and digits")
    if name in kinds():
        raise UserError("NAME", name, "a new name: this kind of target exists")
    into: Path = options.out / f"tippingpoint-{name}"
    example = next(place for place in _PLACES if place.is_dir())
    try:
        into.mkdir(parents=True)
        for file in sorted(_files(example)):
            path = into / _renamed(str(file.relative_to(example)), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_renamed(file.read_text(encoding="utf-8"), name), encoding="utf-8")
    except OSError as problem:
        raise UserError("--out", str(into), f"a directory that can be created ({problem.strerror})") from None
    print(
        f"{into} has a target of the kind {name}, whose leases are files in a directory.\n"
        f"Try it, then replace {name}_target/leases.py, ledger.py and plan.py by those of your target:\n"
        f"  cd {into} && pip install -e . pytest && pytest"
    )
    return MET


def _files(example: Path) -> list[Path]:
    patterns = ("pyproject.toml", "plan.yaml", "lease_directory/*.py", "tests/*.py")
    return [file for pattern in patterns for file in example.glob(pattern)]


def _renamed(text: str, name: str) -> str:
    """Put the new kind's names in place of the example's."""
    title = name.capitalize()
    names = (
        ("lease_directory", f"{name}_target"),
        ("lease-directory", f"tippingpoint-{name}"),
        ("leases-in-a-directory", f"{name}-small"),
        ('"directory"', f'"{name}"'),
        ("kind: directory", f"kind: {name}"),
        ("\ndirectory = ", f"\n{name} = "),
        ("DirectoryTarget", f"{title}Target"),
        ("DirectoryEntry", f"{title}Entry"),
        ("class Directory(", f"class {title}("),
        ("TARGET = Directory()", f"TARGET = {title}()"),
    )
    for old, new in names:
        text = text.replace(old, new)
    return text
