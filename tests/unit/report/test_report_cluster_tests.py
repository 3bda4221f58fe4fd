"""What a report says of a cluster's own tests, and of the loads of its nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData

PLAN = "name: made\ntarget: {kind: pacemaker}\nworkload: {kind: cts, tests: [Flip, SplitBrain]}\n"


def tried(t: float, test: str, **told: Any) -> dict[str, Any]:
    """The event of one test."""
    felt = {
        "updates": 4,
        "longest_update": 0.25,
        "failed_updates": 0,
        "dcs": ["node1", "node2"],
        "fenced": ["node3"],
        "updates_apart": 2,
    }
    fields = {
        "outcome": "passed",
        "assertion": "",
        "problem": "",
        "steps": [["stop node1", 0.5]],
        "felt": felt,
    }
    return {"t": t, "event": "test", "test": test, "stage": 1, "nodes": 4, "seconds": 12.5, **fields, **told}


def sample(t: float, **loads: tuple[float, float]) -> dict[str, Any]:
    """The event of one sample: by node, its load over a minute and its CPU time."""
    nodes = {name: {"load": [load, load / 2, load / 4], "cpu": cpu} for name, (load, cpu) in loads.items()}
    return {"t": t, "event": "node-load", "loads": nodes}


def run_with(*events: dict[str, Any], failures: int = 0) -> RunData:
    samples = {"test.ok": [12_500.0], "Flip.ok": [12_500.0], "update.ok": [3.0, 250.0]}
    if failures:
        samples["test.error"] = [12_500.0] * failures
    return made_run(
        [made_stage(1, 2, samples)], plan=PLAN, events=list(events), workload="cts", target="pacemaker"
    )


def section(*events: dict[str, Any]) -> dict[str, Any]:
    return json.loads(write_report(analyse(run_with(*events)), "json"))["cluster_tests"]


FAILED = tried(14, "SplitBrain", outcome="failed", assertion="one DC", problem="2 sides; expected one")


def test_every_test_is_told_with_its_time_and_what_failed() -> None:
    told = section(tried(1, "Flip"), FAILED)
    assert (
        told["sentence"] == "1 of 2 tests passed; the longest of them was Flip, 12.5 s. Failed: SplitBrain."
    )
    flip, split = told["tests"]
    assert (flip["seconds"], flip["longest_update"], flip["dc_changes"]) == (12.5, 0.25, 1)
    assert flip["steps"] == [{"name": "stop node1", "seconds": 0.5}]
    assert (split["assertion"], split["problem"]) == ("one DC", "2 sides; expected one")


def test_a_test_that_was_skipped_neither_passed_nor_failed() -> None:
    skipped = tried(14, "SplitBrain", outcome="skipped", problem="it needs 3 nodes")
    assert section(tried(1, "Flip"), skipped)["sentence"].startswith("1 of 1 test passed, and 1 was skipped;")


def test_of_many_nodes_that_were_fenced_a_page_names_the_first_three() -> None:
    felt = {**tried(1, "Flip")["felt"], "fenced": [f"node{number}" for number in range(1, 17)]}
    result = analyse(run_with(tried(1, "Flip", felt=felt)))
    assert '<td class="text">node1, node2, node3 and 13 more</td>' in write_report(result, "html")
    assert json.loads(write_report(result, "json"))["cluster_tests"]["tests"][0]["fenced"][-1] == "node16"


def test_the_loads_of_nodes_are_columns_and_their_cpu_is_a_rate() -> None:
    told = section(
        tried(1, "Flip"),
        sample(0, node2=(0.4, 1.0), node10=(0.1, 5.0)),
        sample(5, node2=(0.8, 3.5), node10=(0.1, 5.0)),
        sample(10, node2=(0.2, 3.5)),
    )
    load = told["load"]
    assert (load["t"], list(load["nodes"]), load["node"]) == ([0, 5, 10], ["node2", "node10"], "node2")
    assert load["nodes"]["node2"]["1 min"] == [0.4, 0.8, 0.2]
    assert load["nodes"]["node2"]["cpu"] == [None, 0.5, 0.0]
    assert load["nodes"]["node10"]["cpu"] == [None, 0.0, None]
    (peak,) = told["peaks"]
    assert (peak["nodes"], peak["1 min"], peak["15 min"], peak["cpu"]) == (4, 0.8, 0.2, 0.5)


def test_the_published_load_averages_stand_beside_those_of_the_run() -> None:
    told = section(tried(1, "Flip"), sample(0, node1=(0.4, 1.0)))
    assert [(each["version"], each["at"], each["value"]) for each in told["published"]] == [
        ("1.0.5", {"nodes": 13}, 8),
        ("1.1.9", {"nodes": 16}, 1),
    ]


@pytest.mark.parametrize("format", ["html", "md", "junit"])
def test_every_format_names_the_test_that_failed(format: str) -> None:
    text = write_report(analyse(run_with(tried(1, "Flip"), FAILED, sample(0, node1=(0.4, 1.0)))), format)
    assert "SplitBrain" in text or format == "junit"
    assert "one DC" in text or format == "junit"


def test_other_workloads_have_no_such_section() -> None:
    stages = [made_stage(1, 10, {"claim.ok": [1.0]})]
    assert "cluster_tests" not in json.loads(write_report(analyse(made_run(stages)), "json"))
