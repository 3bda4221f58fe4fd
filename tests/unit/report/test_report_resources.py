"""What a report says of the target's resources: who stands out, on which charts, at what cost, and what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.lxd_runs import FILL_PLAN, Fill, write_fill
from tests.unit.made.made_runs import made_run, made_stage
from tests.unit.made.resource_figures import MEANINGS, made_figure, made_resources, resources_of
from tests.unit.made.synthetic import MadeStage, write_run
from tests.unit.report.test_report import FORMATS, HOSTILE, PLAN, STEADY, assert_loads_nothing, said
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import figures, write_report
from tippingpoint.rundir.gathered import Unit
from tippingpoint.rundir.resources import FigureData, Resources
from tippingpoint.rundir.results import RunData, load_run

T = np.arange(-10.0, 61.0, 1.0)
STAGES = [made_stage(1, 100, {"claim.ok": [5.0] * 50}), made_stage(2, 400, {"claim.ok": [6.0] * 50})]
"""Two stages of 30 s from second 0 on."""
LED = [(-10.0, "a")]


def run_with(resources: Resources | None, **options: Any) -> RunData:
    return replace(made_run(STAGES, **options), resources=resources)


def told(resources: Resources | None, **options: Any) -> dict[str, Any]:
    return json.loads(write_report(analyse(run_with(resources, **options)), "json"))


def section_of(figure: FigureData, *more: FigureData, **options: Any) -> dict[str, Any]:
    return told(made_resources([figure, *more], T, **options))["resources"]


def flat(**hosts: float) -> dict[str, np.ndarray]:
    """Each host at one value all the time."""
    return {host: np.full(len(T), value) for host, value in hosts.items()}


# ---- who stands out ------------------------------------------------------------------------------


def test_the_sentence_says_in_what_the_leader_stands_out_most_first() -> None:
    found = section_of(
        made_figure("memory", T, flat(a=6.2e8, b=1.9e8, c=2.1e8)),
        made_figure("disk-writes", T, flat(a=300, b=310, c=290)),
        made_figure("network-out", T, flat(a=2.08e8, b=3.9e7, c=4.1e7)),
        leader=LED,
    )
    assert found["sentence"] == (
        "The leader is above the followers' median in network out (5.2x) and resident memory (3.1x); a led throughout."
    )


def test_all_that_stands_out_is_counted_though_three_are_named() -> None:
    made = [made_figure(f"made-{n}", T, flat(a=10.0 * (n + 2), b=10, c=10)) for n in range(5)]
    found = section_of(*made, leader=LED)
    assert found["sentence"] == (
        "The leader is above the followers' median in made-4 (6x), made-3 (5x), made-2 (4x) and 2 more figures; "
        "a led throughout."
    )


def test_what_the_load_is_told_to_cost_comes_first_and_a_title_of_two_packs_says_whose_it_is() -> None:
    found = section_of(
        made_figure("cpu", T, flat(a=9, b=1, c=1)),
        made_figure("cpu", T, flat(a=4, b=1, c=1), pack="lxd", cost="operations"),
        leader=LED,
    )
    assert found["sentence"].startswith(
        "The leader is above the followers' median in CPU (lxd) (4x) and CPU (host) (9x);"
    )


def test_what_the_followers_do_not_have_at_all_stands_out_too() -> None:
    found = section_of(made_figure("network-out", T, flat(a=2e6, b=0, c=0)), leader=LED)
    assert found["sentence"].startswith(
        "The leader is above the followers' median in network out (2 Mbit/s against none);"
    )


def test_a_leader_that_is_one_among_others_does_not_stand_out() -> None:
    found = section_of(made_figure("memory", T, flat(a=2.2e8, b=2e8, c=2.1e8)), leader=LED)
    assert found["sentence"] == (
        "The hosts are alike: in none of 1 figures is any of them at 1.5 times the others' median or more "
        "for most of the time."
    )
    assert not found["figures"][0]["rows"][0]["stands_out"]


def test_one_that_is_highest_only_now_and_then_does_not_stand_out() -> None:
    turns = {host: np.where(place == (T // 10) % 3, 90.0, 10.0) for place, host in enumerate("abc")}
    assert section_of(made_figure("cpu", T, turns), leader=LED)["sentence"].startswith("The hosts are alike")


def test_without_a_leader_the_host_that_stands_out_is_named() -> None:
    found = section_of(
        made_figure("memory", T, flat(n1=1e8, n2=1.1e8, n3=4.2e8)),
        made_figure("cpu", T, flat(n1=1, n2=1, n3=2)),
    )
    assert found["sentence"] == (
        "n3 is above the others' median in resident memory (4x) and CPU (2x). "
        "Hosts that do different work differ for that reason alone."
    )
    assert found["figures"][0]["rows"][0]["highest"] == {"host": "n3", "typical": 4.2e8}


def test_how_slow_scrapes_are_is_nothing_of_the_target() -> None:
    slow = made_figure("scrape-duration", T, flat(a=9, b=1, c=1), pack="scrape")
    assert (
        "The hosts are alike"
        in section_of(slow, made_figure("cpu", T, flat(a=1, b=1, c=1)), leader=LED)["sentence"]
    )


def test_of_a_target_with_one_host_what_grew_with_the_load_is_told() -> None:
    memory = np.where(T < 30, 4e8, 1.24e9)
    found = section_of(
        made_figure("memory", T, {"controller": memory}),
        made_figure("cpu", T, flat(controller=0.5)),
    )
    assert found["sentence"] == (
        "Largest growth between 100 and 400 leases: resident memory 3.1x (400 MB to 1.24 GB)."
    )


def test_a_host_that_was_only_scraped_is_none_of_the_targets() -> None:
    slow = made_figure("scrape-duration", T, flat(controller=0.1, prometheus=0.1), pack="scrape")
    found = section_of(made_figure("memory", T, {"controller": np.where(T < 30, 4e8, 1.24e9)}), slow)
    assert found["hosts"] == ["controller"]
    assert found["sentence"].startswith("Largest growth")
    assert found["by_host"] is None


def test_a_part_is_named_with_its_figure() -> None:
    values = {("a", "jujud"): 9e8, ("b", "jujud"): 3e8, ("a", "mongod"): 1e8, ("b", "mongod"): 1e8}
    found = section_of(
        made_figure("memory", T, {k: np.full(len(T), v) for k, v in values.items()}), leader=LED
    )
    assert found["sentence"].startswith(
        "The leader is above the followers' median in resident memory of jujud (3x);"
    )
    assert [row["part"] for row in found["figures"][0]["rows"]] == ["jujud", "mongod"]


def test_when_the_leader_changes_it_is_whoever_led_then() -> None:
    heavy = {"a": np.where(T < 30, 50.0, 10.0), "b": np.where(T < 30, 10.0, 50.0), "c": np.full(len(T), 10.0)}
    found = section_of(made_figure("cpu", T, heavy), leader=[(-10.0, "a"), (30.0, "b")])
    assert found["sentence"] == "The leader is above the followers' median in CPU (5x); 2 hosts led in turn."
    assert found["figures"][0]["led"] == [{"part": "", "values": [50.0] * len(T)}]
    assert found["leader"] == [{"t": -10.0, "host": "a"}, {"t": 30.0, "host": "b"}]


# ---- charts --------------------------------------------------------------------------------------


def test_few_hosts_have_a_line_each() -> None:
    figure = section_of(made_figure("cpu", T, flat(a=2, b=1)))["figures"][0]
    assert [(line["host"], line["values"][0]) for line in figure["lines"]] == [("a", 2.0), ("b", 1.0)]
    assert (figure["roles"], figure["led"]) == ([], [])


def test_many_hosts_have_the_leaders_line_and_the_followers_range() -> None:
    values = {f"h{n}": np.full(len(T), float(n)) for n in range(1, 10)} | {"h10": np.full(len(T), 100.0)}
    figure = section_of(made_figure("cpu", T, values), leader=[(-10.0, "h10")])["figures"][0]
    (role,) = figure["roles"]
    assert figure["lines"] == []
    assert (role["leader"][0], role["low"][0], role["middle"][0], role["high"][0]) == (100.0, 1.0, 5.0, 9.0)


def test_of_many_parts_the_largest_have_a_line_and_the_others_are_counted() -> None:
    values = {(h, f"v{n}"): np.full(len(T), float(n)) for h in ("a", "b") for n in range(10)}
    figure = section_of(made_figure("messages", T, values))["figures"][0]
    assert [role["part"] for role in figure["roles"]] == ["v4", "v5", "v6", "v7", "v8", "v9"]
    assert figure["parts_left_out"] == 4
    assert len(figure["rows"]) == 10


def test_a_figure_that_is_always_zero_is_told_and_not_drawn() -> None:
    resources = made_resources([made_figure("cpu", T, flat(a=1)), made_figure("failures", T, flat(a=0))], T)
    page = assert_loads_nothing(write_report(analyse(run_with(resources)), "html"))
    assert [f["always_zero"] for f in told(resources)["resources"]["figures"]] == [False, True]
    assert "Always 0: failures." in said(page, "resources")
    charts = {a["id"] for a in page.attributes("div") if (a.get("id") or "").startswith("chart-resources-")}
    assert charts == {"chart-resources-cpu"}


def test_charts_have_400_points_at_most() -> None:
    t = np.arange(-100.0, 6000.0, 1.0)
    found = told(made_resources([made_figure("cpu", t, {"a": t * 0 + 1, "b": t * 0})], t))["resources"]
    assert 300 < len(found["t"]) <= 400
    assert {len(line["values"]) for line in found["figures"][0]["lines"]} == {len(found["t"])}


def test_new_leaders_that_only_the_figures_tell_of_stand_on_the_charts() -> None:
    resources = made_resources(
        [made_figure("cpu", T, flat(a=1, b=1))], T, leader=[(-10, "a"), (20, "b"), (25, "")]
    )
    marks = told(resources)["events"]["marks"]
    assert [(mark["t"], mark["kind"], mark["text"]) for mark in marks] == [
        (20.0, "leader", "b leads"),
        (25.0, "leader", "nobody leads"),
    ]


def test_a_new_leader_that_the_run_saw_itself_is_told_once(tmp_path: Path) -> None:
    directory = write_fill(tmp_path / "run", [Fill(10), Fill(20, lose="lxd2")], plan=FILL_PLAN)
    run = replace(
        load_run(directory),
        resources=resources_of(["lxd1", "lxd2", "lxd3"], 60, led=[(-4, "lxd1"), (30, "lxd3")]),
    )
    marks = json.loads(write_report(analyse(run), "json"))["events"]["marks"]
    assert [mark["text"] for mark in marks].count("lxd3 leads") == 1


# ---- tables --------------------------------------------------------------------------------------


def test_figures_are_summed_up_over_the_stages_only() -> None:
    values = {"a": np.where(T < 0, 900.0, 30.0), "b": np.where(T < 0, 900.0, 10.0)}
    (row,) = section_of(made_figure("cpu", T, values), leader=LED)["figures"][0]["rows"]
    assert (row["leader"], row["others"]) == (
        {"typical": 30.0, "max": 30.0},
        {"typical": 10.0, "max": 10.0},
    )
    assert (row["ratio"], row["hosts"], row["stands_out"]) == (3.0, 2, True)


def test_hosts_stand_side_by_side_with_how_long_each_led() -> None:
    found = section_of(
        made_figure("cpu", T, flat(a=2, b=1)),
        made_figure("memory", T, flat(b=1e8, c=3e8)),
        leader=[(-10.0, "a"), (45.0, "b")],
    )["by_host"]
    assert [(column["figure"], column["unit"]) for column in found["columns"]] == [
        ("cpu", "cores"),
        ("memory", "bytes"),
    ]
    assert [(row["host"], row["values"]) for row in found["rows"]] == [
        ("a", [2.0, None]),
        ("b", [1.0, 1e8]),
        ("c", [None, 3e8]),
    ]
    assert [round(row["led"], 2) for row in found["rows"]] == [0.74, 0.26, 0.0]


def test_one_host_is_not_put_beside_others() -> None:
    assert section_of(made_figure("cpu", T, flat(a=2)))["by_host"] is None


def test_of_a_rate_that_comes_in_bursts_the_mean_is_told_and_of_a_level_the_median() -> None:
    burst = {"a": np.where(T % 6 == 0, 30.0, 0.0)}
    (rate,) = section_of(made_figure("disk-writes", T, burst))["figures"][0]["rows"]
    assert rate["others"] == {"typical": pytest.approx(5.0, rel=0.1), "max": 30.0}
    (level,) = section_of(made_figure("memory", T, burst))["figures"][0]["rows"]
    assert level["others"] == {"typical": 0.0, "max": 30.0}


def test_what_the_load_costs_is_told_where_it_is_more_than_noise() -> None:
    # given memory of the leader that grows by 11 kB a lease and one of the follower that does not, over five loads
    sizes = (1000, 2000, 4000, 8000, 16000)
    t = np.arange(-10.0, 151.0)
    load = np.asarray(sizes)[np.clip(t // 30, 0, 4).astype(int)]
    grown = {"a": 54e6 + 11e3 * load, "b": np.full(len(t), 1e8)}
    run = replace(
        made_run(
            [made_stage(number, size, {"claim.ok": [5.0] * 50}) for number, size in enumerate(sizes, start=1)]
        ),
        resources=made_resources([made_figure("memory", t, grown, cost="load")], t, leader=LED),
    )
    # then the page, the document and the Markdown have the leader's cost and that of both, and none of the follower
    found = json.loads(write_report(analyse(run), "json"))["resources"]
    assert [(cost["role"], cost["unit"], cost["per"], cost["slope"]) for cost in found["costs"]] == [
        ("leader", "MB", "1,000 leases", pytest.approx(11.0)),
        ("all", "MB", "1,000 leases", pytest.approx(11.0)),
    ]
    sentence = "Resident memory of the leader: 54 MB, and 11 MB more for each 1,000 leases (95 %: about 11)."
    assert sentence in write_report(analyse(run), "html")
    assert f"- {sentence}" in write_report(analyse(run), "md")
    assert "of a follower" not in write_report(analyse(run), "md")


def test_too_few_loads_for_an_interval_are_said_where_nothing_is_told() -> None:
    grown = {"a": np.where(T < 30, 1e8, 4e8)}
    run = run_with(made_resources([made_figure("memory", T, grown, cost="load")], T))
    why = "a confidence interval needs 4 points, and this run has 2 loads with samples"
    assert json.loads(write_report(analyse(run), "json"))["resources"]["no_costs"] == [why]
    assert f"<li>cost of the load: {why}</li>" in write_report(analyse(run), "html")
    assert f"- cost of the load: {why}" in write_report(analyse(run), "md")


# ---- what is missing or not exact ----------------------------------------------------------------


def test_gaps_between_scrapes_are_joined_and_stand_next_to_the_verdict() -> None:
    gaps = [(-9.0, -2.0, "a"), (10.0, 20.0, "a"), (15.0, 25.0, "b"), (40.0, 42.0, "a")]
    document = told(made_resources([made_figure("cpu", T, flat(a=1, b=1))], T, gaps=gaps))
    assert document["resources"]["gaps"] == [
        {"from": 10.0, "to": 25.0, "hosts": ["a", "b"]},
        {"from": 40.0, "to": 42.0, "hosts": ["a"]},
    ]
    assert document["cautions"] == [
        "a and b were not scraped from 0:10 to 0:25, or for a part of that",
        "a was not scraped from 0:40 to 0:42",
    ]


@pytest.mark.parametrize(("hosts", "more"), [("abcd", "1 more host"), ("abcde", "2 more hosts")])
def test_more_hosts_than_a_few_are_counted(hosts: str, more: str) -> None:
    gaps = [(10.0, 20.0, host) for host in hosts]
    cautions = told(made_resources([made_figure("cpu", T, flat(a=1))], T, gaps=gaps))["cautions"]
    assert cautions == [f"a, b, c and {more} were not scraped from 0:10 to 0:20, or for a part of that"]


def test_more_gaps_than_a_few_are_counted() -> None:
    gaps = [(float(n * 10), n * 10.0 + 1 + n, "a") for n in range(6)]
    cautions = told(made_resources([made_figure("cpu", T, flat(a=1))], T, gaps=gaps))["cautions"]
    assert cautions[0] == "a was not scraped from 0:50 to 0:56"
    assert cautions[3:] == ["3 shorter gaps between scrapes"]


def test_only_clocks_that_are_off_by_more_than_a_second_are_told_next_to_the_verdict() -> None:
    figure = made_figure("cpu", T, flat(a=1, b=1, c=1))
    document = told(made_resources([figure], T, clock={"a": 0.9, "b": -2.5, "c": 61.0}))
    assert document["cautions"] == [
        "the clock of b was 2.5 s behind: its figures may be off by as much",
        "the clock of c was 1 min 01 s ahead: its figures may be off by as much",
    ]
    assert len(document["resources"]["clock"]) == 3


def test_missing_figures_are_named_with_why_and_the_report_comes_all_the_same() -> None:
    resources = made_resources(
        [], T, missing=[("host-cpu", "Prometheus refused the query"), ("lxd-memory", "no series")]
    )
    document = told(resources)
    assert document["cautions"] == ["missing metrics of the target: host-cpu and lxd-memory"]
    run = run_with(resources)
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert "No figure of the target was measured." in said(page, "resources")
    assert "host-cpu: Prometheus refused the query" in said(page, "resources")
    assert "host-cpu: Prometheus refused the query" in write_report(analyse(run), "md")


def test_many_missing_figures_are_counted_next_to_the_verdict_and_told_by_their_reason() -> None:
    names = [f"Hosts: figure {number}" for number in range(5)]
    resources = made_resources(
        [made_figure("cpu", T, flat(a=1))], T, missing=[(name, "no node_exporter") for name in names]
    )
    assert told(resources)["cautions"] == [
        "5 metrics of the target are missing: see “Resource use of the target”"
    ]
    page = assert_loads_nothing(write_report(analyse(run_with(resources)), "html"))
    assert f"{', '.join(names)}: no node_exporter" in said(page, "resources")


def test_what_this_prometheus_never_scrapes_is_folded_and_no_caution() -> None:
    missing = [
        ("Hosts: CPU", "no samples: its source is node_exporter"),
        ("Hosts: Memory", "the query timed out"),
    ]
    resources = made_resources([made_figure("cpu", T, flat(a=1))], T, missing=missing)
    assert told(resources)["cautions"] == ["missing metrics of the target: Hosts: Memory"]
    page = assert_loads_nothing(write_report(analyse(run_with(resources)), "html"))
    assert "1 metric has no source in this Prometheus" in said(page, "resources")
    assert "Hosts: CPU: no samples" in said(page, "resources")
    assert "- 1 metric has no source in this Prometheus" in write_report(analyse(run_with(resources)), "md")


def test_a_run_of_which_nothing_was_gathered_says_how_to_gather_it(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", STEADY, plan=PLAN))
    assert json.loads(write_report(analyse(run), "json"))["resources"] is None
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert "tippingpoint collect RUN --prometheus URL" in said(page, "resources")


def test_a_strained_generator_is_told_even_where_no_threshold_depends_on_it() -> None:
    stages = [made_stage(1, 100, {"claim.ok": [5.0] * 50}, cpu=0.99)]
    document = json.loads(write_report(analyse(made_run(stages)), "json"))
    assert document["verdict"]["reasons"] == [
        "stage 1 (100 leases): the generator itself was strained: a worker used 99 % of its core (tolerated: 90 %)"
    ]
    assert document["cautions"] == []  # it is not said twice


def test_a_strained_generator_is_not_told_twice() -> None:
    stages = [made_stage(1, 100, {"claim.ok": [5.0] * 50}, cpu=0.99)]
    plan = "{name: made, stages: [{leases: 100, hold: 30s}], thresholds: [{operation: claim, p99: 1s}]}"
    document = json.loads(write_report(analyse(made_run(stages, plan=plan)), "json"))
    assert any("strained" in reason for reason in document["verdict"]["reasons"])
    assert document["cautions"] == []


def test_missing_units_and_their_clocks_are_told_next_to_a_failure() -> None:
    def unit(number: int, status: Any, offset: float | None) -> Unit:
        return Unit(
            name=f"load-claimer/{number}", share=number + 1, of=3, status=status, why="it is gone", workers=2,
            cores=2, clock_offset=offset, clock_error=None,
        )  # fmt: skip

    units = [unit(0, "complete", 0.0), unit(1, "missing", None), unit(2, "complete", -3.0)]
    run = replace(made_run(STAGES, status="failed", reason="the target went away"), units=units)
    assert json.loads(write_report(analyse(run), "json"))["cautions"] == [
        "1 of 3 units is missing or incomplete: load-claimer/1",
        "the clock of load-claimer/2 was 3 s behind: its times are corrected for that",
    ]


# ---- the page ------------------------------------------------------------------------------------


def test_the_page_has_a_chart_for_each_figure_and_says_what_stands_out(tmp_path: Path) -> None:
    directory = write_fill(tmp_path / "run", [Fill(10), Fill(20)], plan=FILL_PLAN)
    run = replace(
        load_run(directory), resources=resources_of(["lxd1", "lxd2", "lxd3"], 40, led=[(-4, "lxd1")])
    )
    document = json.loads(write_report(analyse(run), "json"))
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    for section in ("verdict", "resources"):
        assert document["resources"]["sentence"] in said(page, section)
    charts = {a["id"] for a in page.attributes("div") if "chart" in (a.get("class") or "").split()}
    assert {f"chart-resources-{name}" for name in MEANINGS} <= charts
    assert json.loads(page.texts["script"][0]) == document
    markdown = write_report(analyse(run), "md")
    assert document["resources"]["sentence"] in markdown
    assert "| Network out |" in markdown


def test_hostile_names_of_hosts_and_figures_stay_text() -> None:
    figure = made_figure("cpu", T, {HOSTILE: T * 0 + 9, "b": T * 0 + 1, "c": T * 0 + 1}, cost="load")
    figure = figure.model_copy(update=dict.fromkeys(("name", "title", "unit", "meaning", "pack"), HOSTILE))
    run = run_with(
        made_resources(
            [figure], T, missing=[(HOSTILE, HOSTILE)], gaps=[(1, 2, HOSTILE)], clock={HOSTILE: 9.0}
        )
    )
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    assert json.loads(page.texts["script"][0])["resources"]["figures"][0]["title"] == HOSTILE
    assert "onerror=alert(2)" in said(page, "resources")
    write_report(analyse(run), "md")
    write_report(analyse(run), "junit")


def test_four_hours_of_100_hosts_are_a_small_page(tmp_path: Path) -> None:
    stages = [MadeStage(500 * 2**n, over=100, hold=1700, every=20) for n in range(8)]
    run = load_run(write_run(tmp_path / "run", stages, plan=None))
    names = [*MEANINGS, *(f"made-{n}" for n in range(7))]
    hosts = [f"node-{n}" for n in range(100)]
    run.resources = resources_of(hosts, 8 * 1800, step=36.2, led=[(-200, "node-7")], figures=names)
    assert len(write_report(analyse(run), "html").encode()) < 5_000_000 / 4


MAYBE = st.none() | st.floats(-1e15, 1e15) | st.sampled_from([0.0, 1.0])


@st.composite
def anything_gathered(draw: st.DrawFn) -> Resources:
    t = sorted(draw(st.sets(st.integers(-100, 200), max_size=12)))
    hosts = draw(st.lists(st.text(max_size=4), max_size=12, unique=True))
    made = [
        FigureData(
            name=f"f{number}", title=draw(st.text(max_size=5)), meaning="", pack=draw(st.sampled_from(["a", "scrape"])),
            unit=draw(st.sampled_from(["bytes", "bits/s", "cores", "seconds", "count", "count/s", "ratio", "odd"])),
            cost=draw(st.sampled_from(["", "load", "operations"])), chart=draw(st.booleans()),
            series=[
                {"host": host, "part": part, "values": draw(st.lists(MAYBE, min_size=len(t), max_size=len(t)))}
                for host in hosts for part in draw(st.sampled_from([[""], ["p", "q"]]))
            ],
        )
        for number in range(draw(st.integers(0, 3)))
    ]  # fmt: skip
    return Resources(
        source="made", step=1.0, t=[float(moment) for moment in t], figures=made,
        leader=[(-50.0, draw(st.sampled_from([*hosts, ""]))), (10.0, draw(st.sampled_from([*hosts, ""])))],
        gaps=[(1.0, 5.0, host) for host in hosts[:3]],
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(anything_gathered())
def test_whatever_was_gathered_the_report_comes_in_every_format(resources: Resources) -> None:
    analysis = analyse(run_with(resources))
    for format in FORMATS:
        assert write_report(analysis, format)


# ---- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (None, "bytes", "–"),
        (0.0, "bytes", "0 B"),
        (412_345_678, "bytes", "412 MB"),
        (999_600, "bytes", "1 MB"),
        (1.5e9, "bytes/s", "1.5 GB/s"),
        (2.08e8, "bits/s", "208 Mbit/s"),
        (0.5, "cores", "0.5 cores"),
        (0.00045, "seconds", "450 µs"),
        (12.0, "seconds", "12 s"),
        (48_123, "count", "48,123"),
        (12.34, "count/s", "12.3/s"),
        (0.734, "ratio", "73.4 %"),
        (7.0, "widgets", "7 widgets"),
        (-3e6, "bytes", "-3 MB"),
    ],
)
def test_resource_figures_read_as_people_write_them(value: float | None, unit: str, expected: str) -> None:
    assert figures.quantity(value, unit) == expected
