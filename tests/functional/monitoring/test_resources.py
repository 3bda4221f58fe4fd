"""What is gathered of a run's target from a real Prometheus, whose samples are known exactly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from lab.recorded import Recorded
from tests.functional.program import run
from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.monitoring.gather import gather_resources
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.query_packs import Pack, load_pack
from tippingpoint.monitoring.stage_figures import Measured, StageFigures, Wanted
from tippingpoint.rundir.cluster_events import Member
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.resources import MOST_POINTS, MOST_SERIES, Resources, read_resources
from tippingpoint.rundir.results import load_run

Role = Literal["leader", "follower"]

EVERY = 15
STARTED = int(time.time()) // 3600 * 3600 - 4 * 3600
"""When the recorded run began; recorded is from 2 minutes before it to 20 minutes after."""
UNTIL = STARTED + 1200
LONGEST = "http://127.0.0.1:1"
PACK = """
name: made
title: Made
meaning: Made up for a test
targets: []
leader: leads{$selector}
figures:
  - {name: memory, title: Memory, unit: bytes, meaning: RSS, source: the test, expr: "memory_bytes{$selector}",
     cost: load}
  - {name: sent, title: Sent, unit: bits/s, meaning: Network, source: the test,
     expr: "8 * rate(sent_bytes_total{$selector}[$window])"}
  - {name: queue, title: Queue, unit: count, meaning: By vhost, source: the test, expr: "queue{$selector}",
     by: [host, vhost]}
  - {name: nothing, title: Nothing, unit: count, meaning: Is not there, source: an exporter, expr: "nothing{$selector}"}
  - {name: maybe, title: Maybe, unit: count, meaning: Is not there, source: the test, expr: "maybe{$selector}",
     optional: true}
  - {name: wrong, title: Wrong, unit: count, meaning: No PromQL, source: the test, expr: "wrong{$selector} +"}
  - {name: odd, title: Odd, unit: ratio, meaning: No number, source: the test, expr: "odd{$selector}"}
"""


def metrics(hosts: dict[str, range]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Samples of hosts that were scraped in a time: host N has N MB and sends N kB/s."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}

    def add(name: str, labels: str, t: int, value: float) -> None:
        found.setdefault(name, {}).setdefault(f"{{{labels}}}", []).append((t, value))

    for number, (host, scraped) in enumerate(hosts.items(), start=1):
        labels = f'instance="{host}:9100",job="made"'
        for t in scraped:
            failed = host == "lxd3" and STARTED + 300 <= t < STARTED + 420
            add("up", labels, t, 0 if failed else 1)
            add("scrape_duration_seconds", labels, t, 10 if failed else number / 10)
            # What Prometheus writes when a scrape fails, so that a series ends, cannot be in a text.
            add("memory_bytes", labels, t, float("nan") if failed else number * 1e6)
            if failed:
                continue
            add("sent_bytes_total", labels, t, number * 1000 * (t - STARTED + 3600))
            add("leads", labels, t, int(host == ("lxd1" if t < STARTED + 600 else "lxd2")))
            add("node_time_seconds", labels, t, t + number / 4)
            add("queue", f'{labels},vhost="/nova"', t, number)
            add("queue", f'{labels},vhost="/neutron"', t, 2 * number)
            add("odd", labels, t, float("nan"))
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    whole = range(STARTED - 120, UNTIL + 1, EVERY)
    late = range(STARTED + 600, UNTIL + 1, EVERY)
    lost = range(STARTED - 120, STARTED + 301, EVERY)
    hosts = {"lxd1": whole, "lxd2": whole, "lxd3": whole, "lxd4": late, "lxd10": lost}
    with Recorded(tmp_path_factory.mktemp("recorded"), metrics(hosts)) as prometheus:
        yield prometheus


def gathered(url: str, pack: Pack, start: float = STARTED - 120, end: float = UNTIL) -> Resources:
    async def gather() -> Resources:
        async with Prometheus(url) as prometheus:
            return await gather_resources(prometheus, [pack], start, end, STARTED)

    return asyncio.run(gather())


@pytest.fixture(scope="module")
def told(recorded: Recorded) -> Resources:
    return gathered(recorded.url, load_pack(PACK, "made"))


def values(told: Resources, name: str, host: str, part: str = "") -> dict[float, float]:
    """What a figure of a host is, by moment."""
    figure = told.figure(name)
    assert figure is not None
    (series,) = [one for one in figure.series if (one.host, one.part) == (host, part)]
    return {t: value for t, value in zip(told.t, series.values, strict=True) if value is not None}


def test_moments_are_those_of_scrapes_on_the_runs_clock(told: Resources) -> None:
    assert told.step == EVERY
    assert told.t == [float(t) for t in range(-120, 1201, EVERY)]
    assert told.source.startswith("Prometheus 2.")
    assert told.hosts == ["lxd1", "lxd2", "lxd3", "lxd4", "lxd10"]


def test_figures_are_what_was_sampled_by_host_and_part(told: Resources) -> None:
    assert set(values(told, "memory", "lxd2").values()) == {2e6}
    assert set(values(told, "queue", "lxd2", "/neutron").values()) == {4.0}
    assert set(values(told, "queue", "lxd2", "/nova").values()) == {2.0}
    memory = told.figure("memory")
    assert memory is not None
    assert (memory.title, memory.unit, memory.pack, memory.cost) == ("Memory", "bytes", "made", "load")


def test_a_rate_is_told_where_its_whole_window_was_scraped(told: Resources) -> None:
    # given four scrapes in the window of a rate
    sent = told.figure("sent")
    assert sent is not None
    assert sent.window == 4 * EVERY
    # then there is none until the first window is over, and then it is exact
    rates = values(told, "sent", "lxd1")
    assert min(rates) == -60.0
    assert set(rates.values()) == {8000.0}
    # and beside a gap there is none that is too low
    beside = values(told, "sent", "lxd3")
    assert set(beside.values()) == {24_000.0}
    assert not any(300 < t < 480 for t in beside)


def test_gaps_are_exact_to_the_scrape(told: Resources) -> None:
    # given a host that failed for two minutes, one that came later and one that was lost for good
    gaps = [gap for gap in told.gaps if gap[2] in ("lxd3", "lxd4", "lxd10")]
    # then there are gaps from the last scrape that succeeded to the next, and none before a host was there
    assert gaps == [(285.0, 420.0, "lxd3"), (300.0, 1200.0, "lxd10")]
    # and in them there is no value, but for how long scrapes took that failed
    assert not any(285 < t < 420 for t in values(told, "memory", "lxd3"))
    assert values(told, "scrape-duration", "lxd3")[300.0] == 10.0
    assert max(values(told, "memory", "lxd10")) <= 330.0


def test_who_led_and_whose_clock_is_ahead(told: Resources) -> None:
    assert told.leader == [(-120.0, "lxd1"), (600.0, "lxd2")]
    assert told.clock["lxd1"] == pytest.approx(0.25, abs=0.01)
    assert told.clock["lxd3"] == pytest.approx(0.75, abs=0.01)
    assert abs(told.clock["Prometheus"]) < 1.0


def test_what_is_missing_is_told_with_the_reason(told: Resources) -> None:
    missing = dict(told.missing)
    assert sorted(missing) == ["Made: Nothing", "Made: Odd", "Made: Wrong"]
    assert missing["Made: Nothing"] == "no samples: its source is an exporter"
    assert missing["Made: Odd"] == "no sample is a valid number"
    assert "parse error" in missing["Made: Wrong"]


def test_of_many_series_the_largest_are_kept(tmp_path: Path) -> None:
    # given a figure with more series than are kept, of which all but two are small
    many = {
        "queue": {
            f'{{instance="a:1",job="made",vhost="/{number}"}}': [
                (STARTED, 1000.0 if number in (7, 409) else 1.0)
            ]
            for number in range(MOST_SERIES + 10)
        }
    }
    with Recorded(tmp_path, many) as prometheus:
        # when it is gathered
        told = gathered(prometheus.url, load_pack(PACK, "made"))
    # then the large ones are among those that are there, and it says that some are not
    queue = told.figure("queue")
    assert queue is not None
    assert len(queue.series) == MOST_SERIES
    assert {"/7", "/409"} <= {series.part for series in queue.series}
    assert ("Made: Queue", f"the smallest of {MOST_SERIES + 10} series") in told.missing


def measured(
    url: str, role: Role | None, *spans: tuple[int, int], host: str | None = None
) -> dict[str, Measured]:
    """What memory and sent were in the last of these spans, in seconds of the run."""
    pack = load_pack(PACK, "made")
    figures = [figure for figure in pack.figures if figure.name in ("memory", "sent")]
    wanted = [Wanted(figure.name, figure, pack, role, host, None) for figure in figures]

    async def measure() -> dict[str, Measured]:
        async with Prometheus(url) as prometheus:
            asked = StageFigures(prometheus, wanted)
            found = [await asked.measure(STARTED + begin, STARTED + end) for begin, end in spans]
            return found[-1]

    return asyncio.run(measure())


def test_a_threshold_sees_the_largest_figure_of_a_span_by_role_and_host(recorded: Recorded) -> None:
    # Given a span in which lxd1 led, and the largest figures are those of lxd10
    span = (100, 250)
    of_all, of_leader = measured(recorded.url, None, span), measured(recorded.url, "leader", span)
    assert [(one.value, one.host, one.why) for one in of_all.values()] == [
        (5e6, "lxd10", ""),
        (pytest.approx(40_000), "lxd10", ""),
    ]
    assert [(one.value, one.host) for one in of_leader.values()] == [
        (1e6, "lxd1"),
        (pytest.approx(8000), "lxd1"),
    ]
    assert of_leader["memory"].scrapes == 10
    # What does not vary has no error of sampling
    assert of_leader["memory"].error == 0.0
    # and of the followers, or of one host, it is theirs
    assert measured(recorded.url, "follower", span)["sent"].host == "lxd10"
    assert measured(recorded.url, None, span, host="lxd2")["memory"].value == 2e6
    # and where the leader changed, each host counts for as long as it led
    changed = measured(recorded.url, "leader", (400, 800))
    assert [(one.value, one.host) for one in changed.values()] == [
        (2e6, "lxd2"),
        (pytest.approx(16_000), "lxd2"),
    ]


def test_a_threshold_never_takes_a_host_that_was_not_scraped_as_within_its_limit(recorded: Recorded) -> None:
    # Given hosts that were scraped before, and not in the span
    found = measured(recorded.url, None, (100, 250), (310, 410))
    # then what is known is that of the others, and it says who is missing
    assert [(one.value, one.host) for one in found.values()] == [
        (2e6, "lxd2"),
        (pytest.approx(16_000), "lxd2"),
    ]
    assert {one.why for one in found.values()} == {"lxd10 was not scraped within 100 s (and 1 more)"}
    # and a host that was lost in mid-span is missing from there on
    assert (
        measured(recorded.url, None, (200, 400), host="lxd10")["memory"].why
        == "lxd10 was not scraped for 100 s"
    )


def test_a_rate_needs_two_scrapes_in_the_span(recorded: Recorded) -> None:
    found = measured(recorded.url, None, (100, 250), (151, 166), host="lxd1")
    assert (found["memory"].value, found["memory"].why) == (1e6, "")
    assert found["sent"].value is None
    assert found["sent"].why == "lxd1 was scraped once within 15 s, and a rate needs two scrapes"


def test_a_selector_leaves_others_out(recorded: Recorded) -> None:
    async def gather() -> Resources:
        async with Prometheus(recorded.url) as prometheus:
            packs, only = [load_pack(PACK, "made")], 'instance!~"lxd[34].*"'
            return await gather_resources(prometheus, packs, STARTED, UNTIL, STARTED, selector=only)

    assert asyncio.run(gather()).hosts == ["lxd1", "lxd2", "lxd10"]


def test_hosts_go_by_the_names_of_the_targets_members(tmp_path: Path) -> None:
    # given members whose LXD, and whose machines, are scraped under other names: units, addresses, agents
    whole = range(STARTED - 120, UNTIL, EVERY)
    unit = 'instance="10.0.0.2:8443",job="lxd",juju_unit="lxd/0"'
    address = 'instance="10.0.0.1:8443",job="lxd"'
    agent = 'instance="node1.maas",job="node",juju_unit="agent/3"'
    other = 'instance="10.0.0.9:9100",job="node"'
    made: dict[str, dict[str, Any]] = {
        "up": {f"{{{labels}}}": [(t, 1) for t in whole] for labels in (unit, address, agent, other)},
        "memory_bytes": {
            f"{{{labels}}}": [(t, value) for t in whole]
            for labels, value in ((unit, 2), (address, 1), (other, 9))
        },
        "leads": {
            f"{{{labels}}}": [(t, value) for t in whole]
            for labels, value in ((unit, 1), (address, 0), (other, 0))
        },
        "node_uname_info": {f'{{{agent},nodename="node1"}}': [(t, 1) for t in whole]},
        "node_time_seconds": {f"{{{agent}}}": [(t, t + 3) for t in whole]},
    }
    members = [Member("node1", "10.0.0.1"), Member("node2", "10.0.0.2"), Member("node3", "10.0.0.3")]

    async def gather(url: str) -> Resources:
        async with Prometheus(url) as prometheus:
            packs = [load_pack(PACK, "made")]
            return await gather_resources(prometheus, packs, STARTED - 120, UNTIL, STARTED, members=members)

    with Recorded(tmp_path, made) as prometheus:
        told = asyncio.run(gather(prometheus.url))
    # then what is theirs goes by their names, whoever told it, and what is nobody's by its own
    assert set(values(told, "memory", "node1").values()) == {1.0}
    assert set(values(told, "memory", "node2").values()) == {2.0}
    assert told.hosts == ["10.0.0.9", "node1", "node2"]
    assert told.leader == [(-120.0, "node2")]
    assert told.clock["node1"] == pytest.approx(3.0, abs=0.01)


def test_a_long_time_has_no_more_moments_than_a_chart_shows(recorded: Recorded) -> None:
    # given four hours, of which twenty minutes were recorded
    told = gathered(recorded.url, load_pack(PACK, "made"), STARTED - 3600, STARTED + 3 * 3600)
    # then moments are further apart, rates reach over them, and values are the same
    assert len(told.t) <= MOST_POINTS
    assert told.step > 2 * EVERY
    assert set(values(told, "sent", "lxd2").values()) == {16_000.0}
    # and before Prometheus scraped anything there is a gap of all that it knew from its beginning
    assert (-3600.0, -120.0, "lxd1") in told.gaps
    assert not any(gap[2] == "lxd4" and gap[0] < 600 for gap in told.gaps)


def test_a_prometheus_that_is_gone_makes_all_of_it_missing() -> None:
    told = gathered(LONGEST, load_pack(PACK, "made"))
    assert told.figures == []
    assert {"Made: Memory", "Made: Sent", "Made: Queue", "Made: Nothing"} <= {
        what for what, _ in told.missing
    }
    assert all("127.0.0.1:1" in why for _, why in told.missing)


def test_one_that_is_killed_meanwhile_leaves_what_was_answered(tmp_path: Path) -> None:
    # given a Prometheus that is killed when five of seven figures were answered, of which four have no values
    with Recorded(tmp_path, metrics({"lxd1": range(STARTED - 120, UNTIL, EVERY)})) as prometheus:

        def killed(done: int, of: int) -> None:
            if done == 5 and prometheus.pid is not None:
                os.kill(prometheus.pid, signal.SIGKILL)

        async def gather() -> Resources:
            async with Prometheus(prometheus.url) as asked:
                packs = [load_pack(PACK, "made")]
                return await gather_resources(asked, packs, STARTED - 120, UNTIL, STARTED, asked=killed)

        told = asyncio.run(gather())
    # then what came is there, and the rest is missing
    assert told.figures
    assert told.missing


# the command line


def recorded_run(path: Path) -> Path:
    """A run of the time that was recorded, on a target of which only the packs that every target has know."""
    stages = [MadeStage(size, over=30, hold=120) for size in (1000, 2000, 4000, 8000)]
    run = write_run(path, stages)
    manifest = Manifest.load(run)
    manifest.started, manifest.ended = STARTED, UNTIL - 60
    manifest.target = TargetEntry(kind="lxd")
    manifest.save(run)
    return run


def collect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("collect", *arguments)


@pytest.fixture(scope="module")
def a_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A Prometheus with a load average of two hosts."""
    whole = range(STARTED - 120, UNTIL, EVERY)
    made: dict[str, dict[str, Any]] = {
        name: {f'{{instance="lxd{n}:9100",job="node"}}': [(t, value * n) for t in whole] for n, value in of}
        for name, of in (("up", [(1, 1), (2, 0.5)]), ("node_load1", [(1, 1), (2, 1)]))
    }
    with Recorded(tmp_path_factory.mktemp("node"), made) as prometheus:
        yield prometheus


def test_collect_puts_resources_and_a_new_report_into_a_run(a_node: Recorded, tmp_path: Path) -> None:
    # given a run, and the Prometheus that scraped its target meanwhile
    run = recorded_run(tmp_path / "run")
    # when it is collected
    done = collect(run, "--prometheus", a_node.url)
    # then the figures are in its directory, and a report beside them
    assert done.returncode == 0, done.stderr
    told = load_run(run).resources
    assert told is not None
    assert set(values(told, "host-load-1", "lxd2").values()) == {2.0}
    assert (run / "report.html").exists()
    assert "figures of 2 hosts from Prometheus" in done.stdout
    assert "missing: Hosts: CPU, Hosts: CPU used, Hosts: Memory, " in done.stdout
    assert "Hosts: TCP connections: no samples: its source is node_exporter\n" in done.stdout


@pytest.fixture(scope="module")
def of_a_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A Prometheus with the load averages of a whole cloud: targets, others, and our own generators."""
    whole = range(STARTED - 120, UNTIL, EVERY)
    labels = [
        'instance="a",job="node",juju_model="lxd",juju_unit="lxd/0"',
        'instance="b",job="node",juju_model="other",juju_unit="nova/0"',
        'instance="c",job="node",juju_model="lxd",juju_charm="load-claimer",juju_unit="loader/0"',
        'instance="d",job="tippingpoint",juju_unit="loader/0"',
    ]
    made: dict[str, dict[str, Any]] = {
        name: {f"{{{of}}}": [(t, 1) for t in whole] for of in labels} for name in ("up", "node_load1")
    }
    with Recorded(tmp_path_factory.mktemp("cloud"), made) as prometheus:
        yield prometheus


@pytest.mark.parametrize(
    ("only", "hosts"),
    [
        ([], ["lxd/0", "nova/0"]),
        (["--only", "juju_model=lxd"], ["lxd/0"]),
        (["--only", "juju_unit!~lxd/.*"], ["nova/0"]),
    ],
)
def test_collect_takes_what_is_the_targets_and_never_the_generators(
    of_a_cloud: Recorded, tmp_path: Path, only: list[str], hosts: list[str]
) -> None:
    run = recorded_run(tmp_path / "run")
    done = collect(run, "--prometheus", of_a_cloud.url, "--json", *only)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hosts"] == hosts


def test_collect_of_labels_that_nothing_has_says_so(of_a_cloud: Recorded, tmp_path: Path) -> None:
    done = collect(
        recorded_run(tmp_path / "run"), "--prometheus", of_a_cloud.url, "--only", "juju_model=typo"
    )
    assert done.returncode == 3
    assert done.stderr.rstrip().endswith(" (of the series that --only juju_model=typo selects)")


def test_collect_refuses_what_is_no_label(tmp_path: Path) -> None:
    done = collect(recorded_run(tmp_path / "run"), "--prometheus", LONGEST, "--only", "lxd")
    assert done.returncode == 2
    assert done.stderr.startswith("tippingpoint: --only: lxd: expected LABEL=VALUE")


def test_collect_says_it_as_json(a_node: Recorded, tmp_path: Path) -> None:
    done = collect(recorded_run(tmp_path / "run"), "--prometheus", a_node.url, "--json")
    told = json.loads(done.stdout)
    assert told["hosts"] == ["lxd1", "lxd2"]
    assert "host-load-1" in told["figures"]
    assert ["Hosts: CPU", "no samples: its source is node_exporter"] in told["missing"]
    assert read_resources(Path(told["run"]))[0] is not None


def test_collect_of_a_prometheus_that_is_not_there_changes_nothing(a_node: Recorded, tmp_path: Path) -> None:
    # given a run that has resources
    run = recorded_run(tmp_path / "run")
    assert collect(run, "--prometheus", a_node.url).returncode == 0
    before = read_resources(run)
    # when another Prometheus is asked that is not there
    done = collect(run, "--prometheus", LONGEST)
    # then that is said in one line, and they are as before
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("tippingpoint: nothing was gathered: http://127.0.0.1:1: ")
    assert "Traceback" not in done.stderr
    assert read_resources(run) == before


def test_a_run_whose_times_are_no_clocks_is_refused(a_node: Recorded, tmp_path: Path) -> None:
    # given a log that was imported
    run = recorded_run(tmp_path / "run")
    manifest = Manifest.load(run)
    manifest.source = "import"
    manifest.save(run)
    # when it is to be collected, then that is refused in one line
    done = collect(run, "--prometheus", a_node.url)
    assert done.returncode == 2
    assert "expected a run of tippingpoint: imports have no clock" in done.stderr
