"""What a report says an operation cost, wherever it says it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import RunData

_CHARTS = {"rel": 0.017, "abs": 16}
"""How exact charts over time are: 1.6 %, and 16 µs below 1 ms."""


def assert_one_maximum(run: RunData, *operations: str) -> dict[str, Any]:
    """Threshold, table and charts of a run say one maximum of each of these operations, failures at what they cost.

    Returns the report's document, as if the plan had a limit for each.
    """
    limits = [{"operation": name, "max": "1s"} for name in operations]
    plan = {**(run.manifest.plan or {}), "thresholds": limits}
    judged = replace(run, manifest=run.manifest.model_copy(update={"plan": plan}))
    told: dict[str, Any] = json.loads(write_report(analyse(judged), "json"))
    observed = {
        (check["stage"], check["operation"]): check["observed"] for check in told["verdict"]["checks"]
    }
    markdown = write_report(analyse(judged), "md")
    for name in operations:
        highest = max(highest_of(told["timeline"], name, 0.0, None, run.bin_seconds))
        rows = [stage["operations"][name] for stage in told["stages"] if name in stage["operations"]]
        assert highest == pytest.approx(max(row["cost"]["max"] for row in rows), **_CHARTS)
        for stage, following in zip(told["stages"], [*told["stages"][1:], None], strict=True):
            row = stage["operations"].get(name)
            if row is None:
                continue
            assert row["cost"]["max"] == observed[stage["number"], name]
            # (What is answered while a stage drains is the stage's.)
            spans = (stage["begin"], following and following["begin"])
            charted = highest_of(told["timeline"], name, *spans, run.bin_seconds)
            assert max(charted) >= row["cost"]["max"] * (1 - 0.017)
            counted = run.stage(stage["number"]).waited(name)
            failed = sum(row[outcome] for outcome in counted if outcome != "ok")
            assert (row["cost"] == row["response"]) == (failed == 0)
            if failed:
                assert f"{name}, successes alone |" in markdown
    return told


def highest_of(
    timeline: dict[str, Any], name: str, begin: float, end: float | None, bin_seconds: float
) -> Sequence[int]:
    """The highest points of an operation's chart, from one moment to another or to the end."""
    columns = timeline["cost"].get(name) or timeline["latency"][name]
    since = int(begin / bin_seconds)
    until = None if end is None else int(end / bin_seconds) + 1
    return [value for value in columns["max"][since:until] if value is not None]
