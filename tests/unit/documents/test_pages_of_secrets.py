"""What our pages and messages have an operator type: no secret, as Juju writes commands into its audit log."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUFFIXES = {".md", ".yaml", ".py", ".sh", ".j2", ""}
ADDED = re.compile(r"juju (?:add|update)-secret\s((?:[^\n\\]|\\\n|\\[^\n])*)")
_SECRET = r"[a-z-]*(?:password|token|secret|key)"
TYPED = re.compile(rf"(?<![\w#-])({_SECRET})=(?!secret:)\S")
HOW_TO_ADD = re.compile(r"how_to_add\((?:[^()]|\([^()]*\))*\)")


def pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    named = [ROOT / line for line in listed if Path(line).suffix in SUFFIXES]
    return [path for path in named if path.is_file() and path != Path(__file__)]


def typed(text: str) -> list[str]:
    """The keys of secrets whose values a text has its reader type."""
    commands = [*ADDED.findall(text), *HOW_TO_ADD.findall(text)]
    return [key for command in commands for key in TYPED.findall(command.partition(", juju")[0])]


def test_no_page_has_a_secret_typed_into_a_command() -> None:
    """Given juju add-secret or update-secret on any page of ours, then what is secret is in a file."""
    found: dict[str, list[str]] = {}
    commands = 0
    for path in pages():
        text = path.read_text(errors="replace")
        commands += len(ADDED.findall(text))
        if typed(text):
            found[str(path.relative_to(ROOT))] = typed(text)
    assert found == {}
    assert commands >= 8


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("juju add-secret one user=admin password=...", ["password"]),
        ("juju update-secret one token=$(openssl rand -hex 24)", ["token"]),
        (
            "juju add-secret cloud auth-url=https://k \\\n    application-credential-secret=SECRET",
            ["application-credential-secret"],
        ),
        ('how_to_add(charm, "credentials", "user=... password=...")', ["password"]),
        ("juju add-secret one user=admin password#file=password", []),
        ("juju add-secret one key#file=k, juju config app page-token=secret:ID", []),
    ],
)
def test_what_is_typed_is_found(text: str, keys: list[str]) -> None:
    assert typed(text) == keys


def test_a_file_for_a_secret_is_made_for_its_owner_alone() -> None:
    """Given a page that has a secret in a file, then the file is made where others cannot read it, by no argument."""
    for name in (
        "README.md",
        "docs/how-to/charms.md",
        *(f"charms/{n}/README.md" for n in ("load-claimer", "container-spawner", "metrics-collector")),
    ):
        text = (ROOT / name).read_text()
        for file in {*re.findall(r"(?:password|token|secret)#file=(\w+)", text)}:
            assert re.search(rf"\(umask 077; .* > {file}\)", text), (name, file)
