"""Reports of made-up runs that make containers on a cluster: what the document holds, and that every view says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sentences import expect_document_readable
from tests.unit.made.lxd_runs import FILL_PLAN, OBSERVED_MS, Fill, write_fill
from tests.unit.report.test_report import Page, assert_loads_nothing, said
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.report import write_comparison, write_report
from tippingpoint.report.sections.instances import command_of
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.targets.lxd.plan import COMMANDS, OBSERVATIONS

KILLED = {"t": 86.0, "event": "fault", "do": "kill", "member": "lxd2"}
SMALL = [Fill(20), Fill(40), Fill(60, hold=30, lose="lxd2"), Fill(0, hold=5, kind="destroy")]


def made(path: Path, stages: list[Fill], **options: Any) -> RunData:
    return load_run(write_fill(path / "run", stages, **{"plan": FILL_PLAN, **options}))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Three stages on three members, one of which is lost in the third and comes back; then all is removed."""
    return made(tmp_path_factory.mktemp("small"), SMALL, events=[KILLED])


@pytest.fixture(scope="module")
def document(small: RunData) -> dict[str, Any]:
    return json.loads(write_report(analyse(small), "json"))


@pytest.fixture(scope="module")
def page(small: RunData) -> Page:
    return assert_loads_nothing(write_report(analyse(small), "html"))


def test_timings_are_told_for_each_stage_while_it_was_filled_and_at_idle(document: dict[str, Any]) -> None:
    timings = document["timings"]
    assert [(stage["containers"], stage["members"]) for stage in timings["stages"]] == [
        (20, 3),
        (40, 3),
        (60, 3),
    ]
    assert [row["operation"] for row in timings["rows"]] == list(OBSERVATIONS)
    assert [row["command"] for row in timings["rows"]] == list(COMMANDS.values())
    for row in timings["rows"]:
        for cell in row["stages"]:
            # made to take three times as long while things are made
            assert cell["filling"]["p50"] > cell["idle"]["p50"] > 0
            assert cell["idle"]["p99"] >= cell["idle"]["p50"]
    counts = [sum(row["stages"][0][when]["count"] for when in ("filling", "idle")) for row in timings["rows"]]
    assert counts == [document["stages"][0]["operations"][name]["attempts"] for name in OBSERVED_MS]


def test_each_member_is_told_with_its_things_its_losses_and_what_became_of_it(
    document: dict[str, Any],
) -> None:
    members = {member["name"]: member for member in document["members"]}
    assert list(members) == ["lxd1", "lxd2", "lxd3"]
    ends = zip(*(member["at_end"] for member in members.values()), strict=True)
    assert [sum(things) for things in ends] == [20, 40, 60, 0]
    assert members["lxd2"]["at_end"][2] == 0
    assert [member["lost"] for member in members.values()] == [0, 20, 0]
    assert [change["status"] for change in members["lxd2"]["changes"]] == [
        *("online", "offline", "lost", "evicted", "back")
    ]
    assert [bool(member["led"]) for member in members.values()] == [True, False, True]
    assert document["repaired"] == 20


def test_retries_are_counted_by_operation_and_kind(document: dict[str, Any]) -> None:
    told = [(retry["operation"], retry["kind"], retry["count"]) for retry in document["retries"]]
    assert told == [("create", "quorum", 10), ("create", "locked", 4)]
    assert document["gave_up"] == []


def test_members_that_go_and_come_new_leaders_and_faults_stand_on_the_charts(
    document: dict[str, Any],
) -> None:
    marks = [(mark["kind"], mark["text"]) for mark in document["events"]["marks"]]
    assert sorted(marks) == [
        ("fault", "kill lxd2"),
        ("leader", "lxd3 leads"),
        ("member-back", "lxd2 back"),
        ("member-gone", "lxd2 lost, evicted"),
        ("member-gone", "lxd2 offline"),
    ]
    moments = [mark["t"] for mark in document["events"]["marks"]]
    assert moments == sorted(moments)
    assert document["events"]["others"] == []


def test_things_on_each_member_over_time_are_on_the_grid_of_all_charts(document: dict[str, Any]) -> None:
    timeline = document["timeline"]
    assert {name: len(values) for name, values in timeline["members"].items()} == dict.fromkeys(
        ("lxd1", "lxd2", "lxd3"), len(timeline["t"])
    )
    assert max(sum(values) for values in zip(*timeline["members"].values(), strict=True)) == 60


def test_the_page_tells_containers_timings_members_and_retries(small: RunData, page: Page) -> None:
    charts = {a["id"] for a in page.attributes("div") if "chart" in (a.get("class") or "").split()}
    assert {"chart-held", "chart-members", "chart-growth", "chart-observe", "chart-time-launch"} <= charts
    assert "Containers created per second, by the number reached" in said(page, "load")
    assert "for the first third of 60 containers" in said(page, "load")
    assert "20 containers, 3 members" in said(page, "timings")
    assert "lxc network list-leases" in said(page, "timings")
    assert "offline 1:" in said(page, "members")
    assert "Lost and created again: 20 containers." in said(page, "members")
    assert "create quorum 10" in said(page, "events")
    assert "Nothing was given up." in said(page, "events")
    assert "Lost containers" in said(page, "events")
    for section in page.sections:
        assert "lease " not in said(page, section)
        assert "claim" not in said(page, section)
    markdown = write_report(analyse(small), "md")
    for heading in ("Response times of user commands, p50 / p99", "Placement", "Growth", "Retries"):
        assert f"\n## {heading}\n" in markdown


def test_one_of_each_is_said_as_one(document: dict[str, Any]) -> None:
    one = {"lost": 1, "again": 1, "reasons": []}
    expect_document_readable(document | {"repaired": 1, "events": document["events"] | {"connections": one}})


def test_stages_that_differ_in_members_have_a_column_for_each_number(tmp_path: Path) -> None:
    run = made(tmp_path, [Fill(60, members=n) for n in (3, 5, 10)], unit="members", plan=None)
    told = json.loads(write_report(analyse(run), "json"))
    assert [stage["members"] for stage in told["timings"]["stages"]] == [3, 5, 10]
    assert [stage["members_end"] for stage in told["timings"]["stages"]] == [3, 5, 10]
    assert [point["size"] for point in told["by_load"]] == [3, 5, 10]
    assert [mark["text"] for mark in told["events"]["marks"]] == ["lxd4 and lxd5 joined", "5 members joined"]
    # of so many members the chart shows how far they are apart
    assert list(told["timeline"]["members"]) == ["the fullest member", "the median", "the emptiest"]
    assert "60 containers, 10 members" in said(Page(write_report(analyse(run), "html")), "timings")


def test_what_was_given_up_is_told_and_the_load_does_not_count_as_held(tmp_path: Path) -> None:
    # given a project whose limit is reached
    plan = {**FILL_PLAN, "thresholds": [{"operation": "create", "p99": "1m"}]}
    run = made(tmp_path, [Fill(20), Fill(40, gave_up=4)], plan=plan)
    # then the thresholds were met, but not with all of the load there
    verdict = analyse(run).verdict
    assert verdict.outcome == "withheld"
    assert verdict.sentence == (
        "Withheld: 4 containers of stage 2 were given up (create: Limit of 10 reached); "
        "passed up to 20 containers."
    )
    (entry,) = json.loads(write_report(analyse(run), "json"))["gave_up"]
    assert (entry["operation"], entry["kind"], entry["count"]) == ("create", "quota", 4)
    told = said(Page(write_report(analyse(run), "html")), "events")
    assert "4 × create, quota: Limit of 10 reached" in told
    assert "given up: 4 x create, quota: Limit of 10 reached" in write_report(analyse(run), "md")


def test_an_eviction_that_was_given_up_leaves_no_load_out(tmp_path: Path) -> None:
    directory = write_fill(tmp_path / "run", [Fill(20)], plan=FILL_PLAN)
    event = {"t": 5.0, "event": "gave-up", "operation": "evict", "kind": "quorum", "count": 1, "error": "no"}
    with open(directory / "worker-0.jsonl", "a") as log:
        log.write(json.dumps(event) + "\n")
    assert analyse(load_run(directory)).verdict.outcome == "met"


def test_our_own_poll_has_no_knee_and_no_cliff(small: RunData, document: dict[str, Any]) -> None:
    tipping = analyse(small).tipping
    assert "poll" in small.operations
    assert "poll" not in {*tipping.knees, *tipping.no_knee}
    assert "poll" not in document["loading"]
    assert "poll" not in document["observing"]


def test_a_slow_down_for_certain_is_part_of_the_tipping_point(tmp_path: Path) -> None:
    run = made(tmp_path, [Fill(300)], per_second=lambda there: 2 / (1 + there / 60))
    assert "Creation slows down: " in analyse(run).tipping.sentence


def test_a_cliff_while_a_member_was_away_says_so(tmp_path: Path) -> None:
    # given a member that nobody took away on purpose, and creations that fail meanwhile
    directory = write_fill(tmp_path / "run", [Fill(20), Fill(60, lose="lxd2", failures=15)], plan=FILL_PLAN)
    tipping = analyse(load_run(directory)).tipping
    assert tipping.cliff is not None
    assert tipping.cliff.first_broken == 60
    assert "lxd2 was away at that time, so the load may not be the cause." in tipping.sentence


# ---- beside what was published -------------------------------------------------------------------


def test_every_command_that_the_seed_timed_is_one_of_ours() -> None:
    for name in ("lxd-50-members", "lxd-100-members"):
        figures = load_baseline(name).figures
        timed = [command_of(figure, COMMANDS) for figure in figures if figure.what.startswith("lxc ")]
        assert timed == ["cluster-list", "list-fast", "list", "operation-list", "exec", "network-leases"]
        assert {command_of(figure, COMMANDS) for figure in figures if not figure.what.startswith("lxc ")} == {
            None
        }


def test_the_seeds_timings_stand_beside_those_of_the_same_commands(small: RunData) -> None:
    baselines = [load_baseline("lxd-50-members"), load_baseline("etcd3")]
    comparison = compare([small], beside=baselines)
    told = json.loads(write_comparison(comparison, "json"))
    lxd, etcd = (entry["timings"] for entry in told["beside"])
    assert etcd is None
    assert [column["containers"] for column in lxd["columns"]] == [20, 40, 60]
    leases = lxd["rows"][-1]
    assert (leases["command"], leases["published"]["value"]) == ("lxc network list-leases", 100)
    assert [cell["idle"]["p50"] > 0 for cell in leases["stages"]] == [True, True, True]
    assert lxd["made"]["published"]["value"] == 0.27
    assert lxd["made"]["runs"] == [pytest.approx(2.0, rel=0.2)]
    page = assert_loads_nothing(write_comparison(comparison, "html"))
    assert page.elements
    text = write_comparison(comparison, "md")
    assert "The same commands in these runs: LXD, a cluster of 50 members with 5000 containers" in text
    assert "| lxc network list-leases | 100 s |" in text


@pytest.mark.parametrize("stages", [[], [Fill(0, hold=3)], [Fill(4, hold=0)]], ids=["none", "empty", "short"])
def test_a_run_with_hardly_anything_reports_in_every_format(tmp_path: Path, stages: list[Fill]) -> None:
    run = made(tmp_path, stages)
    for format in ("html", "md", "json", "junit"):
        assert write_report(analyse(run), format)
