"""The pictures of the documentation, and what the commands that make them say today."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
_OUTCOME = re.compile(r"^(Met|Missed|Withheld|Failed): ")
"""How a verdict's sentence begins, which a page shows as a badge."""
LISTED = ROOT / "docs" / "images" / "pictures.yaml"
"""Of each picture the command, sections and charts, when it was made, by which commit, and the sentences on it."""


def listed() -> dict[str, dict[str, Any]]:
    """Return the entries of docs/images/pictures.yaml by the picture's name."""
    return yaml.safe_load(LISTED.read_text(encoding="utf-8"))


def sentences_of(command: str) -> list[str]:
    """Return the main sentences of what a command makes, such as `tippingpoint report RUN --format html`."""
    words = command.replace("--format html", "--format json").split()
    told = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, check=False).stdout
    document = json.loads(told)
    if document["kind"] == "run":
        glance = document["glance"]
        tiles = [words for tile in glance["tiles"] for words in (tile["value"], tile["words"]) if words]
        return [_OUTCOME.sub("", document["verdict"]["sentence"]), *tiles, *glance["sure"]]
    return document["sentence"].replace(". ", ".\n").splitlines()
