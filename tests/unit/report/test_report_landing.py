"""Reports of made-up runs on an OpenStack: where servers land, Rally's table, steps against servers, agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.openstack_runs import computes, write_cycles, write_servers
from tests.unit.report.test_report import Page, assert_loads_nothing, said
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.report.sections.landing import host_name
from tippingpoint.rundir.results import RunData, load_run

CHASSIS = {
    **dict.fromkeys(computes(384), 292.0),
    **{f"chassis8-{n}": 400.0 for n in range(128)},
    **{f"chassis4-{n}": 0.0 for n in range(64)},
}
"""As the seed had it at 168,000 servers: nearly 400 on chassis 8 and 9, none on chassis 4."""
OVS = "Open vSwitch agent"


def flap(t: float, host: str, alive: bool, agent: str = OVS) -> dict[str, Any]:
    return {"t": t, "event": "agent", "agent": agent, "host": host, "alive": alive}


def document(run: RunData) -> dict[str, Any]:
    return json.loads(write_report(analyse(run), "json"))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    directory = tmp_path_factory.mktemp("uneven") / "run"
    return load_run(write_servers(directory, [80_000, 163_328], hosts=CHASSIS, per_second=2000))


@pytest.fixture(scope="module")
def page(uneven: RunData) -> Page:
    return assert_loads_nothing(write_report(analyse(uneven), "html"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Four hosts, one of which has none; two agents that go, one of them twice and for good."""
    flaps = [
        flap(6, "compute-2", False),
        flap(16, "compute-2", True),
        flap(20, "compute-2", False),
        flap(21, "compute-1", False, "L3 agent"),
        flap(31, "compute-1", True, "L3 agent"),
    ]
    hosts = {"compute-1": 3.0, "compute-2": 2.0, "compute-3": 1.0, "compute-4": 0.0}
    directory = tmp_path_factory.mktemp("small") / "run"
    return load_run(write_servers(directory, [30, 60], hosts=hosts, events=flaps))


def test_hosts_without_any_and_those_with_most_are_told(uneven: RunData, page: Page) -> None:
    spread = document(uneven)["spread"]
    (_, last) = spread["stages"]
    assert (last["things"], last["hosts"], last["none"]) == (163_328, 576, 64)
    assert (last["most"], last["median"], last["fewest"]) == (400, 292, 0)
    assert len(last["counts"]) == 576
    assert last["counts"] == sorted(last["counts"])
    assert last["cv"] == pytest.approx(0.386, abs=0.001)
    assert "292 on the median host, 400 at most (chassis8-" in spread["sentence"]
    assert "64 hosts have none (chassis4-0, chassis4-1, chassis4-2 and 61 more)" in spread["sentence"]
    assert "less even than random placement would be" in spread["sentence"]
    assert "64 hosts have none" in said(page, "members")
    assert "64 hosts have none" in write_report(analyse(uneven), "md")


def test_hundreds_of_hosts_are_folded_and_drawn_in_order(uneven: RunData, page: Page) -> None:
    charts = {a["id"] for a in page.attributes("div") if "chart" in (a.get("class") or "").split()}
    assert {"chart-spread", "chart-life", "chart-members"} <= charts
    html = write_report(analyse(uneven), "html")
    assert "<details><summary>Each of the 576 hosts</summary>" in html
    assert len(html) < 900_000
    assert "| chassis8-1 |" not in write_report(analyse(uneven), "md"), "each of 576 hosts would flood it"


def test_hosts_picked_at_random_are_as_even_as_chance(tmp_path: Path) -> None:
    even = dict.fromkeys(computes(20), 1.0)
    spread = document(load_run(write_servers(tmp_path / "run", [200], hosts=even)))["spread"]
    assert spread["stages"][0]["cv"] <= spread["stages"][0]["chance"]
    assert "less even" not in spread["sentence"]
    assert "have none" not in spread["sentence"]


def test_less_even_than_chance_is_said(small: RunData) -> None:
    told = document(small)["spread"]
    assert "less even than random placement would be" in told["sentence"]
    assert "1 host has none (compute-4)" in told["sentence"]


def test_hosts_that_only_a_hash_is_told_of_are_said_to_hide_empty_ones(tmp_path: Path) -> None:
    hashed = {f"{n:02x}" * 28: 1.0 for n in range(3)}
    run = load_run(write_servers(tmp_path / "run", [30], hosts=hashed))
    told = document(run)
    assert told["spread"]["hidden"]
    assert "only an administrator can list hosts" in told["spread"]["sentence"]
    assert [member["name"] for member in told["members"]] == [f"{n:02x}" * 6 + "…" for n in range(3)]


def test_agents_that_flap_are_told_with_the_servers_on_their_host(small: RunData) -> None:
    told = document(small)
    ovs, l3 = told["agents"]
    assert (ovs["host"], ovs["agent"], ovs["times"], ovs["first"], ovs["last"]) == (
        "compute-2",
        OVS,
        2,
        6,
        20,
    )
    assert (ovs["on_it"], ovs["in_all"], ovs["down"]) == (10, 30, True)
    assert ovs["seconds"] == pytest.approx(10 + told["stages"][-1]["end"] - 20)
    assert (l3["host"], l3["times"], l3["seconds"], l3["down"]) == ("compute-1", 1, 10, False)
    marks = [(mark["t"], mark["text"]) for mark in told["events"]["marks"]]
    assert marks == [(6, f"{OVS} of compute-2 down"), (20, "2 agents down")]
    assert told["events"]["others"] == [], "told once"
    page = assert_loads_nothing(write_report(analyse(small), "html"))
    assert "Agents that went down" in said(page, "members")
    assert "## Agents that went down" in write_report(analyse(small), "md")


def test_steps_are_told_against_how_many_servers_there_were(uneven: RunData) -> None:
    life = document(uneven)["life"]
    assert list(life["latency"]) == ["create_server", "await_active", "boot_server"]
    assert life["things"] == sorted(life["things"])
    assert 0 < life["things"][0] < life["things"][-1] <= 163_328
    api, active = (life["latency"][name]["p50"] for name in ("create_server", "await_active"))
    assert max(filter(None, api)) < 1.2 * min(filter(None, api)), "made to be the same all the while"
    assert active[-1] > 50 * active[0] > 0, "made to grow with each server"
    for columns in life["latency"].values():
        assert all(
            top >= middle for middle, top in zip(columns["p50"], columns["max"], strict=True) if middle
        )


def test_a_boot_delete_run_has_rallys_table_and_no_other_of_the_same(tmp_path: Path) -> None:
    run = load_run(write_cycles(tmp_path / "run", 50, failures=1))
    told = document(run)
    assert [(row["operation"], row["depth"]) for row in told["rally"]] == [
        ("boot_server", 0),
        ("create_server", 1),
        ("await_active", 1),
        ("delete_server", 0),
        ("total", 0),
    ]
    page = assert_loads_nothing(write_report(analyse(run), "html"))
    table = said(page, "operations")
    header = "action min (sec) median (sec) 90 %ile (sec) 95 %ile (sec) 99 %ile (sec) max (sec) avg (sec) success count"
    assert header in table
    assert "98 % 50" in table
    assert "99.9 %ile" not in table
    markdown = write_report(analyse(run), "md")
    assert "## Stage 1, 50 iterations, as Rally's table" in markdown
    assert "| -\\> create_server |" in markdown
    assert "response time in ms" not in markdown
    assert "1 x await_active error: No valid host was found." in markdown


def test_where_servers_land_that_do_not_stay_is_counted_over_the_stage(tmp_path: Path) -> None:
    run = load_run(write_cycles(tmp_path / "run", 51, hosts=("compute-1", "compute-2")))
    spread = document(run)["spread"]
    assert spread["landed"]
    assert spread["stages"][0]["counts"] == [25, 26]
    assert (
        "In stage 1, 51 servers landed on 2 hosts: 25.5 on the median host, 26 at most" in spread["sentence"]
    )
    assert document(run)["events"]["others"] == []


def test_a_fill_is_told_in_servers_and_hosts_and_nowhere_in_containers(small: RunData) -> None:
    assert "containers" not in write_report(analyse(small), "md").casefold()
    page = assert_loads_nothing(write_report(analyse(small), "html"))
    assert "Servers created per second, by the number reached" in said(page, "load")
    assert "60 servers, 4 hosts" in said(page, "timings")
    for section in page.sections:
        assert "container" not in said(page, section).casefold()


@given(st.text(max_size=80))
def test_a_host_is_shown_by_its_name_unless_that_is_a_hash(name: str) -> None:
    assert host_name(name) == name or host_name(name).startswith(name[:12])
