"""One command runs a plan on two releases of etcd in turns, with a control, and writes a page of all runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.functional.program import CHECKOUT, WITHIN_S


def test_two_releases_are_run_in_turns_and_compared_by_one_command(tmp_path: Path) -> None:
    stages = json.dumps([{"leases": size, "over": "1s", "hold": "9s"} for size in (50, 100)])
    plan = tmp_path / "short.yaml"
    plan.write_text(
        f"name: short\ntarget: {{kind: etcd}}\nworkload: {{claim_time: 10s, renew_time: 1s}}\nstages: {stages}\n"
    )
    words = ["etcd", "3.4", "3.5", f"--plan={plan}", "--repeats=2", "--hold=2s", f"--out={tmp_path}"]
    if os.geteuid() == 0:
        words.append("--cpu=0.5")
    done = subprocess.run(
        [sys.executable, "-m", "lab.compare_releases", *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=2 * WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = tmp_path / "etcd-3.4-3.5.html"
    assert done.stdout.endswith(f"the page is {page}\n")
    told = [
        line.rpartition(" ")[2] for line in done.stdout.splitlines() if line.startswith("compare-releases: ")
    ]
    assert told == ["3.4", "3.5", "3.4-control", "3.4-control", "3.5", "3.4"]
    manifests = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/manifest.json"))]
    versions = [manifest["target"]["version"].split()[0] for manifest in manifests]
    assert versions[0] == versions[2] == versions[3] == versions[5]
    assert versions[1] == versions[4]
    assert versions[0].startswith("3.4.")
    assert versions[1].startswith("3.5.")
    assert all(stage["hold"] == "2s" for manifest in manifests for stage in manifest["plan"]["stages"])
    document = json.loads(
        page.read_text(encoding="utf-8").partition('id="document">')[2].partition("</script>")[0]
    )
    assert len(document["runs"]) >= 2
