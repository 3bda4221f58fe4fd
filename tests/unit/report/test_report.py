"""Reports of made-up runs: what the document holds, and that every view says it, safely and whole."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.searches import NARROWED, write_search
from tests.unit.made.synthetic import JUJU, MadeGrowth, MadeStage, write_run
from tests.unit.report.one_maximum import assert_one_maximum
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.baselines import list_baselines
from tippingpoint.plan.read import parse_plan
from tippingpoint.report import figures, write_report
from tippingpoint.report.formats.markup import LIMIT
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> `|* & \u2028 \x00 \x1b[31m"
FORMATS = ("html", "md", "json", "junit")

PLAN: dict[str, Any] = {
    "name": "etcd-leases",
    "description": "A ramp of leases.",
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000, 2000, 4000)],
    "thresholds": [
        {"operation": "claim", "p99": "100ms", "error_rate": 0.001},
        {"operation": "extend", "p50": "50ms"},
    ],
}
STEADY = [MadeStage(size) for size in (500, 1000, 2000, 4000)]
BROKEN = [
    *STEADY[:3],
    MadeStage(4000, claim_ms=400, failures={"claim.error": 40}, errors=["etcdserver: request timed out"]),
]


def made(path: Path, stages: Sequence[MadeStage], **options: Any) -> RunData:
    return load_run(write_run(path / "run", stages, **options))


def document(run: RunData) -> dict[str, Any]:
    return json.loads(write_report(analyse(run), "json"))


class Page(HTMLParser):
    """The elements and the text of a page, as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.sections: dict[str, str] = {}
        self._section = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self.inside.append(tag)
        if tag == "section":
            self._section = attributes.get("id") or ""
        if tag in ("br", "dt", "dd", "td", "th", "p", "li") and self._section:
            self.sections[self._section] = self.sections.get(self._section, "") + " "
        if tag in ("script", "style", "title"):
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] in ("script", "style", "title"):
            self.texts[self.inside[-1]][-1] += data
        elif self._section:
            self.sections[self._section] = self.sections.get(self._section, "") + data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def said(page: Page, section: str) -> str:
    return " ".join(page.sections[section].replace("\u00a0", " ").split())


def without_outcome(sentence: str) -> str:
    """The sentence of a verdict beside a badge, which has its outcome."""
    return re.sub(r"^(Met|Missed|Withheld|Failed): ", "", sentence)


def assert_loads_nothing(text: str) -> Page:
    page = Page(text)
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster", "background", "style"):
            assert name not in attributes, f"<{tag} {name}>"
        assert not [name for name in attributes if name.startswith("on")], tag
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img")
    assert len(page.attributes("script")) == 2
    assert page.attributes("script")[0]["type"] == "application/json"
    (style,) = page.texts["style"]
    assert "@import" not in style
    assert "url(" not in style
    _, script = page.texts["script"]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|import)\s*\(", script)
    policy = next(m["content"] for m in page.attributes("meta") if "http-equiv" in m) or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, text_of in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text_of.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    return page


# ---- the document ------------------------------------------------------------------------------


def test_a_stage_has_the_figures_of_its_histogram(tmp_path: Path) -> None:
    run = made(tmp_path, STEADY, plan=PLAN)
    stage = document(run)["stages"][2]
    measured = run.stage(3).response("extend")
    response = stage["operations"]["extend"]["response"]
    assert stage["size"] == 2000
    assert response["p99"] == measured.percentile(99)
    assert response["min"] == measured.min
    assert response["max"] == measured.max
    assert response["mean"] == pytest.approx(measured.mean, rel=1e-5)
    assert stage["operations"]["extend"]["ok"] == stage["operations"]["extend"]["attempts"] == measured.total
    assert stage["operations"]["extend"]["success"] == 1.0
    assert stage["operations"]["claim"]["service"]["p50"] < stage["operations"]["claim"]["response"]["p50"]


def test_a_threshold_names_its_worst_stage(tmp_path: Path) -> None:
    claim_p99, claim_errors, extend_p50 = document(made(tmp_path, BROKEN, plan=PLAN))["thresholds"]
    assert (claim_p99["met"], claim_p99["stage"], claim_p99["size"]) == (False, 4, 4000)
    assert (claim_p99["stages_missed"], claim_p99["stages"]) == (1, 4)
    assert claim_p99["worst"] > claim_p99["allowed"] == 100_000
    assert claim_errors["met"] is False
    assert claim_errors["worst"] == pytest.approx(40 / 2040)
    assert extend_p50["met"] is True
    assert extend_p50["stages_missed"] == 0


def test_a_throughput_threshold_has_its_worst_stage_where_it_is_lowest(tmp_path: Path) -> None:
    plan = {**PLAN, "thresholds": [{"operation": "extend", "throughput": 5}]}
    (entry,) = document(made(tmp_path, STEADY, plan=plan))["thresholds"]
    assert (entry["stage"], entry["met"]) == (1, True)
    assert "at least 5/s is allowed" in entry["sentence"]


def test_all_columns_over_time_have_one_grid(tmp_path: Path) -> None:
    timeline = document(made(tmp_path, BROKEN, plan=PLAN, workers=2))["timeline"]
    bins = len(timeline["t"])
    assert bins == 41  # 40 s of stages; the last tick falls on their end
    columns = [c for group in timeline["latency"].values() for c in group.values()]
    columns += [*timeline["gauges"].values(), *timeline["per_second"].values(), *timeline["ok"].values()]
    assert {len(column) for column in columns} == {bins}
    assert sum(timeline["per_second"]["error"]) * timeline["bin_seconds"] == pytest.approx(80)
    assert timeline["latency"]["claim"]["p50"][9] is None  # nothing was claimed while the stage was held


def test_errors_are_grouped_by_message_and_lost_leases_counted(tmp_path: Path) -> None:
    stages = [
        MadeStage(100, failures={"claim.error": 3}, errors=["first", "second"]),
        MadeStage(200, failures={"claim.error": 3, "extend.lost": 9}, errors=["first", "second"]),
    ]
    events = document(made(tmp_path, stages))["events"]
    assert [(e["message"], e["count"], e["first"], e["last"]) for e in events["errors"]] == [
        ("second", 4, 2.5, 12.5),
        ("first", 2, 2.5, 12.5),
    ]
    assert events["lost"]["count"] == 9
    assert (events["lost"]["first"], events["lost"]["last"]) == (12.5, 12.6)


def test_faults_and_lost_workers_stand_on_the_charts(tmp_path: Path) -> None:
    events = [
        {"t": 3.0, "event": "fault", "do": "kill", "member": "m2"},
        {"t": 5.0, "event": "worker-cut", "worker": "h-1", "exit_code": -9},
        {"t": 6.0, "event": "fault-failed", "do": "kill", "member": "m9", "problem": "no such member"},
        {"t": 9.0, "event": "left-behind", "problem": "unreachable", "remedy": "tippingpoint clean runs/x"},
    ]
    told = document(made(tmp_path, STEADY, events=events))
    marks = [(mark["t"], mark["text"]) for mark in told["events"]["marks"]]
    assert marks[0] == (3.0, "kill m2")
    assert marks[1] == (5.0, "worker h-1 died: killed by signal 9")
    assert any("no such member" in note for note in told["notes"])
    assert any("tippingpoint clean runs/x" in note for note in told["notes"])


def test_the_plan_is_told_so_that_it_can_be_run_again(tmp_path: Path) -> None:
    repeat = document(made(tmp_path, STEADY, plan=PLAN))["repeat"]
    assert parse_plan(repeat["plan"]).model_dump() == parse_plan(json.dumps(PLAN)).model_dump()
    assert repeat["command"] == "tippingpoint run etcd-leases.yaml"
    assert repeat["shipped"] is False


def test_loads_of_one_size_are_joined_and_storms_kept_apart(tmp_path: Path) -> None:
    stages = [MadeStage(100), MadeStage(100), MadeStage(100, kind="storm"), MadeStage(50)]
    points = document(made(tmp_path, stages))["by_load"]
    assert [(p["size"], p["storm"], p["stages"]) for p in points] == [
        (50, False, [4]),
        (100, False, [1, 2]),
        (100, True, [3]),
    ]


# ---- the page ----------------------------------------------------------------------------------


def test_the_page_says_what_the_document_says(tmp_path: Path) -> None:
    run = made(tmp_path, BROKEN, plan=PLAN)
    told = document(run)
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert without_outcome(told["verdict"]["sentence"]) in said(page, "verdict")
    assert told["tipping"]["sentence"] in said(page, "verdict")
    assert "✕ thresholds missed" in said(page, "verdict")
    assert "etcd 3.5.16 3 members: m1, m2, m3" in said(page, "what")
    p99 = told["stages"][3]["operations"]["claim"]["response"]["p99"]
    assert figures.milliseconds(p99) in said(page, "operations")
    assert "etcdserver: request timed out" in said(page, "events")
    assert "tippingpoint run etcd-leases.yaml" in said(page, "repeat")
    assert json.loads(page.texts["script"][0]) == told
    charts = {a["id"] for a in page.attributes("div") if "chart" in (a.get("class") or "").split()}
    assert {"chart-load", "chart-time-claim", "chart-time-extend", "chart-held", "chart-outcomes"} <= charts


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    stages = [MadeStage(100, failures={"claim.error": 5}, errors=[HOSTILE])]
    plan = {**PLAN, "description": HOSTILE}
    events = [
        {"t": 1.0, "event": "fault", "do": HOSTILE, "member": HOSTILE},
        {"t": 2.0, "event": HOSTILE, HOSTILE: HOSTILE},
        {"t": 2.0, "event": "left-behind", "problem": HOSTILE},
    ]
    run = made(tmp_path, stages, plan=plan, events=events, reason=HOSTILE, status="interrupted")
    run.manifest.title = run.manifest.id = run.manifest.origin = HOSTILE
    run.manifest.target.version = HOSTILE
    text = write_report(analyse(run), "html")
    page = assert_loads_nothing(text)
    assert json.loads(page.texts["script"][0])["run"]["title"] == HOSTILE
    assert "onerror=alert(2)" in said(page, "events")  # as text, not as an attribute
    assert text.count("</script>") == 2
    markdown = write_report(analyse(run), "md")
    assert not re.search(r"(?<!\\)<(script|img)", markdown)
    suite = ElementTree.fromstring(write_report(analyse(run), "junit"))
    assert "alert(1)" in (suite.get("name") or "")


@pytest.fixture(scope="module")
def empty_run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(write_run(tmp_path_factory.mktemp("empty") / "run", []))


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_ends_the_data_it_stands_in(empty_run: RunData, text: str) -> None:
    empty_run.manifest.title = text
    page = assert_loads_nothing(write_report(analyse(empty_run), "html"))
    assert json.loads(page.texts["script"][0])["run"]["title"] == text
    ElementTree.fromstring(write_report(analyse(empty_run), "junit"))
    write_report(analyse(empty_run), "md")


def test_an_hour_of_run_is_a_small_page(tmp_path: Path) -> None:
    stages = [MadeStage(100 * 2**n, over=20, hold=430) for n in range(8)]
    assert len(write_report(analyse(made(tmp_path, stages, plan=None)), "html").encode()) < 1_000_000


# ---- runs on a Juju controller --------------------------------------------------------------------

HOLLOW: dict[str, Any] = {
    **PLAN,
    "name": "juju-leases-small",
    "target": {"kind": "juju", "controller": "staging"},
    "thresholds": [{"operation": "connect", "p99": "2s"}],
}
LEASES = [
    MadeStage(
        size,
        connect_ms=30,
        connections_lost=8 if size == 400 else 0,
        failures={"connect.limited": 5} if size == 400 else {},
    )
    for size in (100, 200, 400, 800)
]


def leases_on_juju(tmp_path: Path, version: str = "4.0.15", **options: Any) -> RunData:
    """Two workers, each with the half of the leases and of the fleet."""
    fleet = {"seconds": 12.5, "applications": 400, "units": 1200, "machines": 2}
    target = JUJU.model_copy(update={"version": version})
    return made(tmp_path, LEASES, plan=HOLLOW, target=target, workers=2, prepared=fleet, **options)


def test_a_run_on_juju_says_who_logged_in_where_and_what_was_made_first(tmp_path: Path) -> None:
    run = leases_on_juju(tmp_path)
    told = document(run)
    assert (told["run"]["identity"], told["run"]["controller"]) == ("hollow", "staging")
    assert told["run"]["prepared"] == {
        "seconds": 12.5,
        "things": {"applications": 800, "units": 2400, "machines": 4},
    }
    what = said(assert_loads_nothing(write_report(analyse(run), "html")), "what")
    assert "controller staging" in what
    assert "hollow every unit logs in as itself" in what
    assert "800 applications, 2,400 units, 4 machines in 12.5 s" in what
    assert told["operations"] == ["connect", "claim", "extend"]
    assert "controller staging" in write_report(analyse(run), "md")


@pytest.mark.parametrize("identity", ["hollow", "agent"])
def test_all_holders_as_one_unit_are_a_note_of_the_report(tmp_path: Path, identity: str) -> None:
    target = {
        "kind": "juju",
        "identity": identity,
        **({"agent": "agent.conf"} if identity == "agent" else {}),
    }
    run = made(tmp_path, LEASES, plan={**HOLLOW, "target": target}, target=JUJU)
    assert any("as one unit" in note for note in document(run)["notes"]) == (identity == "agent")


@pytest.mark.parametrize(("version", "simulated"), [("4.0.15", False), ("4.0-simulator15", True)])
def test_a_simulator_is_known_at_a_glance(tmp_path: Path, version: str, simulated: bool) -> None:
    run = leases_on_juju(tmp_path, version)
    page = write_report(analyse(run), "html")
    head = page[page.index("<header") : page.index("</header>")]
    assert ("on a simulator, not on a real Juju controller" in head) == simulated
    assert ("**On a simulator" in write_report(analyse(run), "md")) == simulated
    assert document(run)["run"]["simulated"] is simulated


def test_connections_that_were_lost_and_made_again_are_told_and_are_no_failed_operations(
    tmp_path: Path,
) -> None:
    run = leases_on_juju(tmp_path)
    told = document(run)
    connections = told["events"]["connections"]
    assert (connections["lost"], connections["again"]) == (16, 16)
    assert [reason["message"] for reason in connections["reasons"]] == [
        "10.0.0.2:17070: connection reset by peer"
    ]
    assert told["events"]["errors"] == []
    timeline = told["timeline"]
    assert sum(timeline["connections_lost"]) * timeline["bin_seconds"] == pytest.approx(16)
    events = said(Page(write_report(analyse(run), "html")), "events")
    assert "Logged-in connections: 16 lost, 16 made again while a stage was held" in events
    assert "16 connections lost, 16 made again" in write_report(analyse(run), "md")


def test_what_a_rate_limit_refused_has_a_column_of_its_own_only_where_there_was_one(tmp_path: Path) -> None:
    told = document(leases_on_juju(tmp_path / "juju"))
    assert told["outcomes"] == ["ok", "denied", "limited", "lost", "timeout", "error"]
    connect = told["stages"][2]["operations"]["connect"]
    assert (connect["limited"], connect["success"]) == (10, 1.0)
    assert document(made(tmp_path, STEADY))["outcomes"] == ["ok", "denied", "lost", "timeout", "error"]


def spawn_stages(slower: float = 1.0) -> list[MadeGrowth]:
    busy = "cannot add relation: state changing too quickly (excessive contention)"
    growth = [
        MadeGrowth(
            size,
            size + 10,
            {
                "add-machine": (40, 4),
                "add-unit": (120 * slower, size),
                "relate": (60, 20),
                "status": (9, 14),
                "full-status": (0.4 * size, 14),
            },
            over=12,
            failures={"relate.error": 6, "connect.limited": 3} if size == 504 else {},
            errors=[("relate", "error", busy, 6), ("connect", "limited", "slow down (try again)", 3)]
            if size == 504
            else (),
        )
        for size in (63, 126, 252, 504)
    ]
    removal = {"remove-unit": (50.0, 400), "remove-machine": (80.0, 4), "full-status": (90.0, 18)}
    return [*growth, MadeGrowth(504, 14, removal, kind="destroy", over=12)]


SPAWN: dict[str, Any] = {
    "name": "juju-add-unit",
    "target": {"kind": "juju"},
    "workload": {"kind": "grow"},
    "stages": [{"applications": 1, "units": units} for units in (63, 126, 252, 504)] + [{"units": 0}],
    "thresholds": [{"operation": "add-unit", "p99": "1s"}, {"operation": "remove-unit", "p99": "1s"}],
}


def test_a_spawn_run_tells_latency_and_growth_and_keeps_removals_to_their_own_rows(tmp_path: Path) -> None:
    run = made(tmp_path, spawn_stages(), plan=SPAWN)
    told = document(run)
    assert told["operations"][-2:] == ["remove-unit", "remove-machine"]
    assert told["outcomes"] == ["ok", "limited", "timeout", "error"]
    assert told["observing"] == ["status", "full-status"]
    assert [point["size"] for point in told["by_load"]] == [63, 126, 252, 504]
    assert {point["throughput"] for point in told["by_load"]} == {None}
    assert [entry["operation"] for entry in told["thresholds"]] == ["add-unit", "remove-unit"]
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    charts = {a["id"] for a in page.attributes("div") if "chart" in (a.get("class") or "").split()}
    assert {"chart-load", "chart-observe", "chart-growth", "chart-time-full-status"} <= charts
    assert "5: 63, 126, 252, 504, 504 (removed) units" in said(page, "what")
    assert "504destroy" in said(page, "operations")
    assert "lost" not in said(page, "operations").split()
    assert "Things present, and still to be created or removed" in said(page, "time")
    ElementTree.fromstring(write_report(analyse(run), "junit"))


def test_growth_is_told_part_by_part(tmp_path: Path) -> None:
    parts = document(made(tmp_path, spawn_stages(), plan=SPAWN))["growth"]
    first, second = (part for part in parts if part["stage"] == 1)
    assert (first["from"], second["to"]) == (0, 73)
    assert first["to"] == second["from"]
    assert first["per_second"] == pytest.approx(first["to"] / first["seconds"], rel=1e-4)
    assert [part["kind"] for part in parts[-2:]] == ["destroy", "destroy"]
    assert parts[-1]["to"] == 14
    assert document(made(tmp_path / "claims", STEADY))["growth"] == []


def test_errors_and_retries_are_counted_by_the_targets_own_class(tmp_path: Path) -> None:
    run = made(tmp_path, spawn_stages(), plan=SPAWN)
    events = document(run)["events"]
    assert events["classes"] == [
        {"operation": "relate", "class": "excessive contention", "count": 6},
        {"operation": "connect", "class": "try again", "count": 3},
    ]
    assert [error["operation"] for error in events["errors"]] == ["relate"]
    assert [error["count"] for error in events["limited"]] == [3]
    told = said(Page(write_report(analyse(run), "html")), "events")
    assert "6 × relate: excessive contention" in told
    assert "3 × connect: slow down (try again)" in told


# ---- runs that are not as they should be ---------------------------------------------------------

ODD: dict[str, tuple[list[MadeStage], dict[str, Any]]] = {
    "empty": ([], {"status": "interrupted", "reason": "ended early on request"}),
    "first second": ([MadeStage(100, over=0, hold=0, finished=False)], {"status": "interrupted"}),
    "unfinished": ([MadeStage(100), MadeStage(200, over=2, hold=2, finished=False)], {"status": "cut"}),
    "no success": ([MadeStage(100, over=0, extends_per_second=0, failures={"claim.error": 9})], {}),
    "one stage": ([MadeStage(100)], {}),
    "one lease": ([MadeStage(1)], {}),
    "refused": ([], {"status": "failed", "reason": "m1: connection refused"}),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("plan", [None, PLAN], ids=["no plan", "plan"])
def test_an_odd_run_reports_in_every_format(tmp_path: Path, name: str, plan: dict[str, Any] | None) -> None:
    stages, options = ODD[name]
    run = made(tmp_path, stages, plan=plan, **options)
    reports = {format: write_report(analyse(run), format) for format in FORMATS}
    page = assert_loads_nothing(reports["html"])
    told = json.loads(reports["json"])
    assert without_outcome(told["verdict"]["sentence"]) in said(page, "verdict")
    assert html.escape(told["verdict"]["sentence"], quote=False)[:40] in reports["md"].replace("\\", "")
    ElementTree.fromstring(reports["junit"])


def test_an_empty_run_says_what_is_missing(tmp_path: Path) -> None:
    page = Page(write_report(analyse(made(tmp_path, [], plan=PLAN, status="interrupted")), "html"))
    assert "none was started" in said(page, "what")
    assert "no stage was started" in said(page, "verdict")
    assert "load" not in page.sections
    assert "nothing was measured" in said(page, "time")
    assert "no stage was started" in said(page, "notes")


def test_a_run_without_a_clock_has_no_charts_over_time_and_says_why(tmp_path: Path) -> None:
    run = made(tmp_path, STEADY, timeline="order", source="import", origin="claims.log", host=None)
    told = document(run)
    assert told["timeline"] is None
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert "no clock" in said(page, "time")
    assert "claims.log" in said(page, "what")
    assert "there is no plan to run again" in said(page, "repeat")
    assert "first" not in said(page, "events").split()


@pytest.mark.parametrize("baseline", [b for b in list_baselines() if b.transcript], ids=lambda b: b.name)
def test_a_published_transcript_reports_like_any_run(baseline: Any) -> None:
    run = baseline.run()
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert "– no thresholds" in said(page, "verdict")
    assert document(run)["tipping"]["sentence"] in said(page, "verdict")
    assert len(write_report(analyse(run), "md").encode()) < LIMIT


# ---- what failed counts at what it cost ----------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["claim.error", "claim.timeout", "extend.lost", "extend.timeout", "extend.error"]
            ),
            st.integers(1, 40),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([0.2, 30.0, 2000.0]),
)
def test_tables_charts_and_thresholds_have_one_maximum(
    tmp_path_factory: pytest.TempPathFactory, failures: list[dict[str, int]], failing_ms: float
) -> None:
    # given stages in which operations fail sooner or later than they succeed
    stages = [
        MadeStage(500 * 2**number, claim_ms=failing_ms / 4, extend_ms=5, failures=of_stage)
        for number, of_stage in enumerate(failures)
    ]
    run = made(tmp_path_factory.mktemp("made"), stages, plan=PLAN)
    # then what they cost is one figure wherever it is told, and successes alone stand beside it where they differ
    assert_one_maximum(run, "claim", "extend")


def test_without_failures_each_operation_has_one_row(tmp_path: Path) -> None:
    run = made(tmp_path, STEADY, plan=PLAN)
    assert document(run)["timeline"]["cost"] == {}
    for name in ("html", "md"):
        assert "successes alone<" not in write_report(analyse(run), name)
        assert "successes alone |" not in write_report(analyse(run), name)


def test_an_operation_that_never_succeeded_has_a_row_and_a_chart(tmp_path: Path) -> None:
    # given a target that was frozen all the while: what was asked of it timed out
    run = made(tmp_path, [MadeStage(500, failures={"connect.timeout": 30})], plan=PLAN)
    # when it is reported
    told, page = document(run), write_report(analyse(run), "html")
    # then what was waited is told, though nothing succeeded
    measured = told["stages"][0]["operations"]["connect"]
    assert (measured["cost"]["max"] > 0, measured["response"]) == (True, None)
    assert "connect" not in told["timeline"]["latency"]
    assert max(value or 0 for value in told["timeline"]["cost"]["connect"]["max"]) >= measured["cost"]["max"]
    assert 'id="chart-time-connect"' in page


# ---- Markdown and JUnit --------------------------------------------------------------------------


def test_markdown_has_the_verdict_and_the_table(tmp_path: Path) -> None:
    run = made(tmp_path, BROKEN, plan=PLAN)
    told, text = document(run), write_report(analyse(run), "md")
    assert text.startswith("# etcd-leases: ❌ missed\n")
    assert f"**{told['verdict']['sentence']}**" in text
    claim = told["stages"][3]["operations"]["claim"]
    lines = text.split("## claim")[1].split("##")[0].splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("| 4,000 |"))
    assert f"| {figures.milliseconds(claim['cost']['p99'])} |" in lines[place]
    assert lines[place + 1].startswith("| claim, successes alone |")
    assert f"| {figures.milliseconds(claim['response']['p99'])} |" in lines[place + 1]
    assert lines[place + 1].endswith(f"| {figures.milliseconds(claim['service']['max'])} |")
    assert text.count("claim, successes alone") == 1
    assert "| 98 % | 2,040 |" in lines[place]


def test_markdown_says_when_it_happened(tmp_path: Path) -> None:
    # given a member that was stopped twice, and leases that were lost in two of three stages
    stages = [
        MadeStage(500, failures={"extend.lost": 8}),
        MadeStage(1000),
        MadeStage(2000, failures={"extend.lost": 3, "claim.timeout": 4}),
    ]
    freezes = [{"t": t, "event": "fault", "do": "stop", "member": "m2"} for t in (1.5, 21.5)]
    run = made(tmp_path, stages, plan=PLAN, events=freezes)
    # when it is told as Markdown
    lines = write_report(analyse(run), "md").split("## Events\n\n")[1].split("\n\n")[0].splitlines()
    # then each is a line, in the order of their first moment: how often, first, last, in which stages
    assert lines[2:] == [
        "| stop m2 | 2 | 0:01 | 0:21 | 1, 3 |",
        "| extend lost | 11 | 0:02 | 0:22 | 1, 3 |",
        "| claim timeout | 4 | 0:22 | 0:22 | 3 |",
    ]


def test_markdown_has_the_generators_health(tmp_path: Path) -> None:
    run = made(tmp_path, [*STEADY[:3], MadeStage(4000, stood_still_ms=750)], plan=PLAN)
    health = document(run)["generator"]
    text = write_report(analyse(run), "md").split("## Generator health\n\n")[1].split("\n## ")[0]
    assert health["sentence"] in text
    (stall,) = health["stalls"]
    assert f"- {figures.clock(stall['t'])} {stall['text']}" in text
    row = next(line for line in text.splitlines() if line.startswith("| 3 | 2,000 |"))
    assert f"| {figures.latency(health['stages'][2]['schedule_lag_max'])} |" in row
    assert f"| {figures.share(health['stages'][2]['cpu'])} |" in row


def test_markdown_stays_short_whatever_the_run(tmp_path: Path) -> None:
    stages = [
        MadeStage(
            10 + n,
            over=1,
            hold=1,
            failures={"claim.error": 1},
            errors=[f"{n} " + "\N{COLLISION SYMBOL}" * 2000],
        )
        for n in range(60)
    ]
    text = write_report(analyse(made(tmp_path, stages)), "md")
    assert len(text.encode()) < LIMIT
    assert "36 more rows are in the JSON report" in text
    assert "| 10 |" in text
    assert "| 69 |" in text


def test_junit_fails_the_threshold_that_was_missed(tmp_path: Path) -> None:
    run = made(tmp_path, BROKEN, plan=PLAN)
    suite = ElementTree.fromstring(write_report(analyse(run), "junit"))
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == ["run", "claim p99 <= 100 ms", "claim error rate <= 0.1 %", "extend p50 <= 50 ms"]
    failure = cases["claim p99 <= 100 ms"].find("failure")
    assert failure is not None
    assert failure.text == document(run)["thresholds"][0]["sentence"]
    assert "in stage 4 (4,000 leases); at most 100 ms is allowed" in (failure.text or "")
    assert cases["extend p50 <= 50 ms"].find("failure") is None
    assert cases["run"].find("error") is None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "0")


def test_junit_of_a_run_that_met_everything_is_green(tmp_path: Path) -> None:
    suite = ElementTree.fromstring(write_report(analyse(made(tmp_path, STEADY, plan=PLAN)), "junit"))
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "0", "0"]


def test_junit_is_an_error_when_the_verdict_is_withheld(tmp_path: Path) -> None:
    stages = [MadeStage(500), MadeStage(1000, claim_ms=400, cpu=1.2)]
    run = made(tmp_path, stages, plan={**PLAN, "stages": PLAN["stages"][:2]})
    suite = ElementTree.fromstring(write_report(analyse(run), "junit"))
    error = suite.find("testcase[@name='run']/error")
    assert error is not None
    assert error.get("type") == "withheld"
    assert error.get("message") == document(run)["verdict"]["sentence"]
    assert suite.get("errors") == "1"
    assert suite.get("failures") == "0"


def test_junit_is_an_error_when_the_run_ended_early(tmp_path: Path) -> None:
    run = made(tmp_path, STEADY[:2], plan=PLAN, status="interrupted", reason="ended early on request")
    suite = ElementTree.fromstring(write_report(analyse(run), "junit"))
    assert suite.find("testcase[@name='run']/error") is not None


def test_junit_of_a_search_that_was_interrupted_is_as_green_as_its_answer(tmp_path: Path) -> None:
    # given a search that knew its answer when it was interrupted, so that it ends with 0
    directory = write_search(tmp_path, NARROWED)
    manifest = Manifest.load(directory)
    manifest.status = "interrupted"
    manifest.save(directory)
    analysis = analyse(load_run(directory))
    assert analysis.verdict.exit_code == 0
    suite = ElementTree.fromstring(write_report(analysis, "junit"))
    assert [suite.get(name) for name in ("failures", "errors")] == ["0", "0"]


def test_one_stage_of_one_lease_is_written_in_the_singular(tmp_path: Path) -> None:
    run = made(tmp_path, [MadeStage(1, claim_ms=400)], plan=PLAN)
    page = write_report(analyse(run), "html")
    assert "1: 1 lease<" in page
    assert "in 1 of 1 stages" not in page
    assert "1 of 1 stages" not in write_report(analyse(run), "md")


# ---- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.latency(412), "412 µs"),
        (figures.latency(999.6), "1 ms"),
        (figures.latency(3070), "3.07 ms"),
        (figures.latency(512_000), "512 ms"),
        (figures.latency(999_600), "1 s"),
        (figures.latency(93_000_000), "93 s"),
        (figures.latency(None), "–"),
        (figures.milliseconds(410), "0.41"),
        (figures.milliseconds(12_340), "12.3"),
        (figures.milliseconds(91_040_000), "91,040"),
        (figures.share(1.0), "100 %"),
        (figures.share(0.99996), "99.996 %"),
        (figures.share(0.0), "0 %"),
        (figures.share(0.00001), "0.001 %"),
        (figures.rate(0.274), "0.274/s"),
        (figures.rate(1333.3), "1,333/s"),
        (figures.seconds(200), "3 min 20 s"),
        (figures.seconds(3725), "1 h 02 min"),
        (figures.clock(3725), "1:02:05"),
        (figures.clock(65.4), "1:05"),
        (figures.two_digits(4237), "4,200"),
        (figures.change(0.0123, "error_rate"), "+1.23 points"),
        (figures.change(1.25, "p99"), "1.25x"),
        (figures.interval(1.1, None, "p99"), "1.1x to no bound"),
    ],
)
def test_figures_read_as_people_write_them(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.floats(min_value=0, max_value=1))
def test_a_share_is_all_or_nothing_only_when_it_is(value: float) -> None:
    text = figures.share(value)
    assert (text == "100 %") == (value == 1.0 or value * 100 == 100.0)
    assert (text == "0 %") == (value == 0.0)


@given(st.floats(min_value=1, max_value=3.6e9))
def test_a_latency_reads_back_to_three_digits(value: float) -> None:
    number, unit = figures.latency(value).split(" ")
    scale = {"µs": 1, "ms": 1e3, "s": 1e6}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.006, abs=0.5)


def test_a_page_has_every_asset_with_its_licence() -> None:
    assets = Path(figures.__file__).parent / "assets"
    assert "MIT License" in (assets / "LICENSE.uPlot").read_text()
    assert np.all([(assets / name).stat().st_size for name in ("uPlot.iife.min.js", "uPlot.min.css")])
