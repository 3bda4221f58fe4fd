"""Hooks are short: what they import is light, however many kinds of target there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("aiohttp", "charmlibs", "jinja2", "numpy", "prometheus_client", "rich", "uvloop")
_IMPORT = f"""
import sys, charm
from tippingpoint.plan.kinds import section_of
from tippingpoint.targets.secret import kinds_by_secret
print(*map(section_of, kinds_by_secret()))
print("heavy:", *[name for name in {HEAVY!r} if name in sys.modules])
"""


@pytest.mark.parametrize("name", ["load-claimer", "container-spawner", "metrics-collector"])
def test_a_hook_imports_no_heavy_library(name: str) -> None:
    """Given a charm, and what it knows of each kind of target it can reach, then neither numbers nor HTTP
    were imported for that."""
    paths = [ROOT, ROOT / "charms/common/src", ROOT / "charms" / name / "src"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    imported = subprocess.run(
        [sys.executable, "-c", _IMPORT], env=environment, capture_output=True, text=True, timeout=600, check=True
    )  # fmt: skip
    sections, heavy = imported.stdout.splitlines()
    assert "EtcdTarget" in sections
    assert heavy.split() == ["heavy:"]
