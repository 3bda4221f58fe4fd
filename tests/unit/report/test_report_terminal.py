"""A run as a terminal shows it: the table at its end, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tippingpoint.analysis.analyse import analyse
from tippingpoint.report.document import build_document
from tippingpoint.report.formats.terminal import render_end, render_report
from tippingpoint.report.sections.totals import build_totals
from tippingpoint.rundir.results import load_run

KEPT = Path(__file__).parents[2] / "data/kept-runs"


def lines(run: str, width: int, *, whole: bool = False) -> list[str]:
    analysis = analyse(load_run(KEPT / run))
    render = render_report if whole else render_end
    return [line.plain for line in render(build_document(analysis), build_totals(analysis.run), width)]


def test_a_run_ends_with_its_operations_their_thresholds_and_then_its_verdict() -> None:
    told = lines("etcd-v2", 80)
    empty = told.index("")
    assert told[0].split() == ["operation", "count", "rate", "p50", "p90", "p99", "max", "failed"]
    assert [line.split()[0] for line in told[1:empty] if not line.startswith(" ")] == ["claim", "extend"]
    assert "    ✗ p99 ≤ 250 ms: 1.56 s at 160 leases" in told
    assert told[empty + 1].startswith("Missed: extend p99 was 1.56 s at 160 leases")
    assert told[empty + 2].startswith("Tips between 20 and 40 leases")


def test_a_wide_terminal_has_thresholds_beside_their_operations() -> None:
    head, claim, *_ = lines("etcd-v2", 160)
    assert head.endswith("failed   threshold")
    assert claim.startswith("claim")
    assert "≤ 500 ms" in claim


@pytest.mark.parametrize(
    "run",
    [
        "etcd",
        "etcd-search",
        "etcd-v2",
        "imported-juju",
        "imported-rally",
        "juju-growth",
        "lxd",
        "lxd-cut",
        "openstack",
    ],
)
def test_every_kind_of_run_is_shown_and_its_tables_fit(run: str) -> None:
    for whole in (False, True):
        for width in (80, 160):
            told = lines(run, width, whole=whole)
            tables = [line for line in told if "   " in line.strip()]
            assert told
            assert all(len(line) <= width for line in tables), max(tables, key=len)


def test_totals_are_those_of_all_stages() -> None:
    run = load_run(KEPT / "etcd-v2")
    claim, _ = build_totals(run)
    assert claim.count == sum(stage.attempts("claim") for stage in run.stages)
    assert claim.max is not None
    assert claim.p99 is not None
    assert claim.p99 <= claim.max
