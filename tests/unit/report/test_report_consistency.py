"""No sentence of a report contradicts another: over runs of every kind, verdict, thresholds, tables, tipping point,
JUnit and exit code say one and the same."""

from __future__ import annotations

import json
import random
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.findings import examine
from tippingpoint.report import write_report
from tippingpoint.report.formats.markup import plain
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.stages import StageResult

RENEW_S = 30
EXIT_CODES = {"met": 0, "missed": 1, "failed": 3, "withheld": 4}
PERCENTILES = ("p50", "p90", "p95", "p99", "p999", "max")
TIPS = re.compile(r"^(Tips|Reaches a cliff|Misses a threshold) ")
HELD_THROUGH = re.compile(r"passed up to ([\d,]+) leases")

failures = st.dictionaries(
    st.sampled_from(["extend.lost", "extend.timeout", "extend.error", "claim.error", "claim.timeout"]),
    st.sampled_from([1, 3, 40, 400]),
    max_size=2,
)
latencies = st.sampled_from([1.0, 2.0, 2.5, 30.0, 400.0, 9000.0, 45_000.0])


@dataclass
class MadeRun:
    """A run as it is generated: its stages, what happened to it, what its plan allows, and what its journal lacks."""

    stages: list[MadeStage]
    thresholds: list[dict[str, Any]]
    status: str
    cut_at: float | None
    fault_at: float | None
    lines_lost: float
    seed: int


@st.composite
def made_runs(draw: st.DrawFn) -> MadeRun:
    count = draw(st.integers(1, 5))
    status = draw(
        st.sampled_from(["complete", "complete", "complete", "interrupted", "cut", "running", "failed"])
    )
    stages: list[MadeStage] = []
    size = 50
    for number in range(count):
        last = number == count - 1
        storm = number > 0 and draw(st.integers(0, 7)) == 0
        size *= 1 if storm else 2
        stages.append(
            MadeStage(
                size,
                extend_ms=draw(latencies),
                failures=draw(st.just({}) | failures),
                kind="storm" if storm else "ramp",
                hold=draw(st.sampled_from([8, 8, 8, 1])) if last else 8,
                extends_per_second=draw(st.sampled_from([None, None, None, 0.0, 1.0])),
                cpu=draw(st.sampled_from([0.2, 0.2, 0.2, 0.99])),
                finished=not last or status == "complete" or draw(st.booleans()),
                stood_still_ms=draw(st.sampled_from([0.0, 0.0, 0.0, 750.0])),
            )
        )
    limits = {
        "p50": ["5ms", "1s"],
        "p99": ["10ms", "500ms", "60s"],
        "max": ["400ms", "120s"],
        "lost_rate": [0, 0.1],
        "error_rate": [0, 0.5],
        "throughput": [1, 1000],
    }
    thresholds: list[dict[str, Any]] = []
    for operation in sorted(draw(st.sets(st.sampled_from(["extend", "claim"]), max_size=2))):
        able = [name for name in sorted(limits) if operation == "extend" or name != "lost_rate"]
        names = draw(st.sets(st.sampled_from(able), min_size=1, max_size=3))
        thresholds.append(
            {"operation": operation, **{name: draw(st.sampled_from(limits[name])) for name in sorted(names)}}
        )
    return MadeRun(
        stages=stages,
        thresholds=thresholds,
        status=status,
        cut_at=draw(st.none() | st.none() | st.floats(0, 30)),
        fault_at=draw(st.none() | st.none() | st.floats(0, 30)),
        lines_lost=draw(st.sampled_from([0.0, 0.0, 0.0, 0.15, 0.9])),
        seed=draw(st.integers(0, 1000)),
    )


def written(made: MadeRun, directory: Path) -> tuple[RunData, int]:
    """The run, read back from what is left of its journal, and how many lines are gone."""
    plan = {
        "name": "made",
        "target": {"kind": "etcd", "endpoints": ["http://127.0.0.1:2379"]},
        "workload": {
            "kind": "claim",
            "units": 1,
            "claim_time": f"{2 * RENEW_S}s",
            "renew_time": f"{RENEW_S}s",
        },
        "stages": [
            {"leases": stage.size, "over": f"{stage.over}s", "hold": "8s"}
            for stage in made.stages
            if stage.kind == "ramp"
        ],
        "thresholds": made.thresholds,
    }
    events: list[dict[str, Any]] = []
    if made.fault_at is not None:
        events.append({"t": made.fault_at, "event": "fault", "do": "kill", "member": "m1"})
        events.append({"t": made.fault_at + 4, "event": "fault", "do": "start", "member": "m1"})
    if made.cut_at is not None:
        events.append({"t": made.cut_at, "event": "worker-cut", "worker": "h-0"})
    write_run(
        directory,
        made.stages,
        plan=plan,
        events=sorted(events, key=lambda event: event["t"]),
        status=made.status,  # type: ignore[arg-type]
        reason="the target could not be reached" if made.status == "failed" else "",
        seed=made.seed,
    )
    log = directory / "worker-h-0.hlog"
    chance = random.Random(made.seed)
    lines = log.read_text().splitlines(True)
    head, left = lines[:4], [line for line in lines[4:] if chance.random() >= made.lines_lost]
    log.write_text("".join(head + left))
    return load_run(directory), len(lines) - len(head) - len(left)


@settings(
    max_examples=60,
    deadline=None,
    phases=set(Phase) - {Phase.explain},  # which takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(made_runs())
@example(  # a threshold that was missed during a fault, too, and before the cliff
    MadeRun(
        [MadeStage(100), MadeStage(200), MadeStage(400, extends_per_second=0.0)],
        thresholds=[{"operation": "claim", "p50": "5ms"}],
        status="complete",
        cut_at=None,
        fault_at=0.0,
        lines_lost=0.0,
        seed=0,
    )
)
def test_no_sentence_of_a_report_contradicts_another(made: MadeRun) -> None:
    with tempfile.TemporaryDirectory() as place:
        run, lines_gone = written(made, Path(place) / "run")
        analysis = analyse(run)
        document = json.loads(write_report(analysis, "json"))
        markdown = write_report(analysis, "md")
        suite = ElementTree.fromstring(write_report(analysis, "junit"))
    verdict, tipping, thresholds = document["verdict"], document["tipping"], document["thresholds"]
    outcome, said = verdict["outcome"], verdict["sentence"]
    checks, held = verdict["checks"], examine(run).loads_held

    # The exit code and JUnit are as red as the verdict.
    assert verdict["exit_code"] == EXIT_CODES[outcome]
    red = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    assert (red == 0) == (outcome == "met"), ElementTree.tostring(suite)
    assert plain(said) in markdown
    assert plain(tipping["sentence"]) in markdown

    # A verdict is what its checks and loads are.
    missed = [check for check in checks if check["met"] is False]
    if outcome == "met":
        assert not [check for check in checks if check["met"] is not True and check["observed"] is not None]
        assert not [
            stage for stage in run.stages if stage.is_step and examine(run).of(stage.number).why_not_held
        ]
        assert made.status == "complete"
        assert made.cut_at is None or made.cut_at >= (run.stages[-1].end or 0)
        assert not lines_gone
    if missed:
        assert outcome in ("missed", "failed")
    for entry in thresholds:
        of_it = [c for c in checks if (c["operation"], c["limit"]) == (entry["operation"], entry["limit"])]
        assert (entry["met"] is False) == any(check["met"] is False for check in of_it)
        assert not (entry["met"] is True and outcome == "withheld" and all(c["met"] is None for c in of_it))

    # The tables have what thresholds were judged by.
    stages = {stage["number"]: stage for stage in document["stages"]}
    for check in checks:
        if check["stage"] is None or not check["observed"]:
            continue
        row = stages[check["stage"]]["operations"][check["operation"]]
        if check["limit"] in PERCENTILES:
            assert row["cost"][check["limit"]] == check["observed"]
        elif check["limit"] in ("lost_rate", "error_rate"):
            outcomes = ("lost",) if check["limit"] == "lost_rate" else ("error", "timeout")
            counted = sum(row[name] for name in outcomes)
            assert (counted == 0) == (check["observed"] == 0)

    # What is said to be held was held, and lies before the tipping point.
    point = tipping["point"]
    through = HELD_THROUGH.search(said)
    if through is not None and checks:
        size = int(through[1].replace(",", ""))
        assert size in held
        assert "No load was sustained" not in tipping["sentence"]
        assert not [c for c in missed if stages[c["stage"]]["kind"] == "ramp" and c["size"] <= size]
    if point is not None:
        assert point["last_held"] is None or point["last_held"] in held
        assert point["last_held"] is None or point["last_held"] < point["first_beyond"]
        assert "No cliff" not in tipping["sentence"]
        assert TIPS.match(tipping["sentence"])
    else:
        assert not TIPS.match(tipping["sentence"])
    on_the_ladder = [
        check
        for check in missed
        if stages[check["stage"]]["kind"] == "ramp" and not hit_by_fault(made, run.stage(check["stage"]))
    ]
    if on_the_ladder and outcome == "missed":
        assert point is not None
        assert "No cliff" not in tipping["sentence"]
        if not point["doubt"]:
            assert point["first_beyond"] <= min(check["size"] for check in on_the_ladder)
    if outcome == "met" and point is not None:
        assert point["by"] != "threshold"
    if not held:
        assert "passed up to" not in said


def hit_by_fault(made: MadeRun, stage: StageResult) -> bool:
    """Whether a member was down on purpose during a stage: what is missed then says little of the load."""
    return (
        made.fault_at is not None and made.fault_at < (stage.end or 1e9) and made.fault_at + 4 > stage.begin
    )
