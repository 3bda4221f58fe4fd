"""Going on with a run that was cut: which stage a new run begins with, and what cannot be gone on with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan
from tippingpoint.play.resume import take_up
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.ledger import remember
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget

STAGES = 3
HOLD = 12.0
"""Seconds that the first stages of the plan lxd-cluster-small are held."""


def cut_run(directory: Path, *, marks: list[tuple[float, int, str]], first_stage: int = 1) -> LxdEntry:
    """A run of lxd-cluster-small whose process is gone, with these stage marks (moment, stage, phase)."""
    plan = load_plan("lxd-cluster-small")
    manifest = Manifest(
        id="cut",
        title=plan.name,
        workload="spawn",
        target=TargetEntry(kind="lxd"),
        plan=plan.model_dump(mode="json", exclude_none=True),
        first_stage=first_stage,
        started=time.time(),
        pid=None,
    )
    manifest.save(directory)
    entry = LxdEntry(
        run="cut",
        prefix=name_prefix("cut"),
        image="",
        target=LxdTarget(kind="lxd"),
        store=None,
        identity=None,
    )
    remember(directory, entry)
    journal = Journal(directory, "0", manifest.started)
    for moment, stage, phase in marks:
        journal.interval(max(0.0, moment - 1.0), moment, {})
        journal.events.write(moment, "stage", stage=stage, size=15, kind="ramp", phase=phase)
    journal.close(directory / "rescue")
    return entry


@pytest.mark.parametrize(
    ("marks", "stage"),
    [
        ([], 1),
        ([(1.0, 1, "begin")], 1),
        ([(1.0, 1, "begin"), (9.0, 1, "hold")], 1),
        ([(1.0, 1, "begin"), (9.0, 1, "hold"), (11.0, 1, "end")], 1),  # the load ended when its runner was gone
        ([(1.0, 1, "begin"), (9.0, 1, "hold"), (9.0 + HOLD, 1, "end"), (9.0 + HOLD, 2, "begin")], 2),
    ],
)  # fmt: skip
def test_a_run_goes_on_with_the_stage_it_was_cut_in(
    tmp_path: Path, marks: list[tuple[float, int, str]], stage: int
) -> None:
    entry = cut_run(tmp_path, marks=marks)
    plan, taken_up = take_up(tmp_path)
    assert plan == load_plan("lxd-cluster-small")
    assert (taken_up.entry, taken_up.stage) == (entry, stage)


def test_a_run_that_had_gone_on_with_another_keeps_its_stage_when_it_is_cut_before_it(tmp_path: Path) -> None:
    cut_run(tmp_path, marks=[], first_stage=3)
    assert take_up(tmp_path)[1].stage == STAGES


def test_a_run_of_listed_leases_cannot_be_gone_on_with(tmp_path: Path) -> None:
    plan = load_plan("etcd-leases-small")
    Manifest(
        id="x",
        title="x",
        target=TargetEntry(kind="etcd"),
        plan=plan.model_dump(mode="json"),
        status="complete",
        started=time.time(),
    ).save(tmp_path)
    with pytest.raises(
        UserError, match=r"expected a search \(find\) or a run of the workload spawn; this is a run of claim"
    ):
        take_up(tmp_path)


def test_a_run_that_made_nothing_yet_is_refused(tmp_path: Path) -> None:
    cut_run(tmp_path, marks=[])
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(UserError, match="this one has no ledger"):
        take_up(tmp_path)


PROBES: list[dict[str, Any]] = [
    {
        **{"stage": number, "size": size, "held": size < 400, "fresh": number == 1, "strained": ""},
        **{"margins": [["extend p99", size / 300 - 1, 0.05]], "broken": [], "began": 10.0 * number},
        "seconds": 9.0,
    }
    for number, size in enumerate((100, 200, 400), start=1)
]


def searched(directory: Path, probes: list[dict[str, Any]], *, found: bool = False) -> None:
    """A search of etcd-find that was interrupted after these probes, or that came to its end."""
    plan = load_plan("etcd-find")
    Manifest(
        id="searched",
        title=plan.name,
        workload="claim",
        target=TargetEntry(kind="etcd"),
        plan=plan.model_dump(mode="json", exclude_none=True),
        status="interrupted",
        started=time.time(),
    ).save(directory)
    events = Events(directory / "events.jsonl")
    for place, probe in enumerate(probes):
        events.write(float(place), "probe", **probe)
    if found:
        events.write(99.0, "found", ended="resolution", limit=300.0, low=280.0, high=320.0)
    events.close(directory / "rescue")


def test_a_search_is_gone_on_with_by_what_its_probes_told(tmp_path: Path) -> None:
    searched(tmp_path, PROBES)
    plan, taken_up = take_up(tmp_path)
    assert plan == load_plan("etcd-find")
    assert [(probe.stage, probe.size, probe.held) for probe in taken_up.probes] == [
        (1, 100, True),
        (2, 200, True),
        (3, 400, False),
    ]
    # and its next stage has a number of its own, even if one more had begun
    assert taken_up.stage == 5
    assert taken_up.entry is None


def test_a_probe_that_was_told_again_counts_once(tmp_path: Path) -> None:
    again = [{**probe, "stage": None} for probe in PROBES]
    searched(tmp_path, [*PROBES, *again, {**PROBES[0], "stage": 7, "began": 60.0}])
    assert [probe.stage for probe in take_up(tmp_path)[1].probes] == [1, 2, 3, 7]


def test_a_search_that_has_its_answer_is_not_gone_on_with(tmp_path: Path) -> None:
    searched(tmp_path, PROBES, found=True)
    with pytest.raises(UserError, match="this one has its answer"):
        take_up(tmp_path)
