"""One command holds etcd's API v2 against v3: real clusters, a real Prometheus, and a page of both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.functional.program import CHECKOUT, WITHIN_S


def test_both_apis_are_run_gathered_and_compared_by_one_command(tmp_path: Path) -> None:
    stages = json.dumps([{"leases": size, "over": "1s", "hold": "7s"} for size in (50, 100)])
    command = [
        sys.executable,
        "-m",
        "lab.versus",
        "compare-etcd",
        f"--out={tmp_path}",
        f"--set=stages={stages}",
    ]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    page = tmp_path / "etcd-v2-v3.html"
    assert done.stdout.endswith(f"the page is {page}\n")
    told = page.read_text(encoding="utf-8").partition('id="document">')[2].partition("</script>")[0]
    document = json.loads(told)
    assert ["v2" in run["version"] for run in document["runs"]] == [True, False]
    assert document["differs"] == ["target.api: v2 / v3"]
    # the seed's four, of the members themselves: CPU, memory, what is written to disk, what is sent to peers
    sizes = {figure["name"]: figure["sizes"] for figure in document["resources"]}
    assert [sizes.get(f"etcd-{name}") for name in ("cpu", "memory", "fsyncs", "peer-out")] == [[50, 100]] * 4
