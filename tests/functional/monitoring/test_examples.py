"""The examples of prometheus.yml in docs/reference: one for each query pack, and Prometheus accepts them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.prometheus import find_promtool
from tippingpoint.monitoring.query_packs import shipped_packs

EXAMPLES = Path(__file__).parents[3] / "docs" / "reference" / "prometheus"


def test_each_pack_has_one() -> None:
    assert {path.stem for path in EXAMPLES.iterdir()} == set(shipped_packs())


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_prometheus_accepts_it(path: Path) -> None:
    # --syntax-only: the files of certificates are not here
    command = [find_promtool(), "check", "config", "--syntax-only", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
