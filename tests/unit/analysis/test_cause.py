"""What bound a target where it tipped, when it is known what did; and that nothing is named when nothing did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage
from tests.unit.made.resource_figures import made_figure, made_resources
from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.cause import Cause, causes_of
from tippingpoint.report import write_report
from tippingpoint.rundir.resources import FigureData, Limit, Resources
from tippingpoint.rundir.results import RunData

SIZES = (100, 200, 400, 800, 1600, 3200)
STEADY_MS = (5.0, 5.0, 5.2, 5.1)
T = np.arange(-60.0, len(SIZES) * STAGE_SECONDS, 1.0)
Of = Callable[[float], float]
"""A figure of a host by the load; 0 before the first."""
USED = Limit(of="CPU", above=0.9, because="Made up.")
THROTTLED = Limit(of="CPU quota", above=0.25, because="Made up.")
BUSY = Limit(of="disk", above=0.9, because="Made up.")
FSYNC = Limit(of="disk", above=0.01, wait=True, because="Made up.")
SENT_AGAIN = Limit(of="network", above=0.01, because="Made up.")
IN_LINE = Limit(of="network", above=0.005, because="Made up.")
FILES = Limit(of="file descriptors", above=0.95, because="Made up.")
QUEUE = Limit(of="queue", above=100, wait=True, because="Made up.")
MEMORY = Limit(of="memory", below=0.05, because="Made up.")


def tips() -> RunData:
    """A run whose claims leave their plateau between 800 and 1,600 leases."""
    times = [*STEADY_MS, 60.0, 400.0]
    return made_run(
        made_stage(number, size, {"claim.ok": [ms] * 100})
        for number, (size, ms) in enumerate(zip(SIZES, times, strict=True), start=1)
    )


def breaks() -> RunData:
    """A run that has a knee between 400 and 800 leases, and loses half of them at 3,200."""
    samples = [{"claim.ok": [ms] * 400} for ms in (5.0, 5.0, 5.2, 40.0, 120.0)]
    samples.append({"claim.ok": [300.0] * 200, "extend.lost": [300.0] * 200})
    return made_run(
        made_stage(number, size, each)
        for number, (size, each) in enumerate(zip(SIZES, samples, strict=True), 1)
    )


def breaks_at_once() -> RunData:
    """A run in which half of the claims fail at the only load."""
    return made_run([made_stage(1, 100, {"claim.ok": [300.0] * 90, "claim.error": [300.0] * 90})])


def figure(
    name: str, unit: str, limit: Limit | None, hosts: Mapping[str, Of], part: str = "", window: float = 4.0
) -> FigureData:
    """A figure of hosts by the load, which has a part of this name."""
    loads = [0 if t < 0 else SIZES[min(int(t // STAGE_SECONDS), len(SIZES) - 1)] for t in T]
    courses = {(host, part): np.array([of(load) for load in loads]) for host, of in hosts.items()}
    made = made_figure(name, T, courses, chart=False)
    return made.model_copy(update={"unit": unit, "limit": limit, "window": window})


def watched(run: RunData, *figures: FigureData) -> RunData:
    return replace(run, resources=made_resources(figures, T))


@cache
def analysed(make: Callable[[], RunData]) -> Analysis:
    """The analysis of a run without figures, which is the same for all figures."""
    return analyse(make())


def cause_of(*figures: FigureData, make: Callable[[], RunData] = tips) -> Cause:
    """What bound the target of a run that had these figures."""
    analysis = analysed(make)
    findings = replace(analysis.findings, run=watched(analysis.run, *figures))
    (found,) = causes_of(findings, analysis.tipping)
    return found


def from_load(load: float, before: float, after: float) -> Of:
    return lambda size: after if size >= load else before


HEALTHY = (
    figure("CPU used", "ratio", USED, {"a": lambda load: 0.1 + load / 8000, "b": lambda load: 0.1}),
    figure("fsync time", "seconds", FSYNC, {"a": lambda load: 0.002, "b": lambda load: 0.002}),
    figure("sent again", "ratio", SENT_AGAIN, {"a": lambda load: 0.0, "b": lambda load: 0.001}),
    figure("free memory", "ratio", MEMORY, {"a": lambda load: 0.5, "b": lambda load: 0.6}),
    figure("pending", "count", QUEUE, {"a": lambda load: load / 100, "b": lambda load: 0}, window=0.0),
    figure("files", "ratio", FILES, {"a": lambda load: load / 10_000, "b": lambda load: 0.1}, window=0.0),
)
PLANTED: dict[str, tuple[FigureData, str]] = {
    "cpu": (figure("CPU used", "ratio", USED, {"a": from_load(1600, 0.4, 0.97)}), "the CPU of a was used up"),
    "quota": (
        figure("throttled", "ratio", THROTTLED, {"a": from_load(1600, 0.02, 0.9)}, part="etcd"),
        "the CPU quota of a was used up",
    ),
    "disk": (
        figure("disk busy", "ratio", BUSY, {"a": from_load(1600, 0.3, 0.99)}, part="vda"),
        "the disk of a could do no more",
    ),
    "fsync": (
        figure("fsync time", "seconds", FSYNC, {"a": from_load(1600, 0.004, 0.2)}),
        "the disk of a could do no more",
    ),
    "network": (
        figure("sent again", "ratio", SENT_AGAIN, {"a": from_load(1600, 0.0, 0.05)}),
        "the network of a could do no more",
    ),
    "card": (
        figure("network queue", "seconds", IN_LINE, {"a": from_load(1600, 0.0, 0.08)}, part="eth0"),
        "the network of a could do no more",
    ),
    "files": (
        figure("files", "ratio", FILES, {"a": from_load(1600, 0.4, 1.0)}, window=0.0),
        "the file descriptors of a were used up",
    ),
    "queue": (
        figure("pending", "count", QUEUE, {"a": from_load(1600, 3, 900)}, window=0.0),
        "a queue of a grew",
    ),
    "memory": (
        figure("free memory", "ratio", MEMORY, {"a": from_load(1600, 0.5, 0.01)}, window=0.0),
        "the memory of a was used up",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_saturated_at_the_knee_is_named_with_its_host_and_values(name: str) -> None:
    # given a target that tips at 1600, and one figure of host a that reaches its limit there
    planted, said = PLANTED[name]
    others = [each for each in HEALTHY if each.name != planted.name]
    cause = cause_of(*others, planted)
    # then it is named, with what it was on the plateau
    assert cause.named is not None
    assert (cause.named.figure, cause.named.host, cause.hosts) == (planted.name, "a", ["a"])
    assert (cause.plateau_load, cause.load, cause.named.since) == (800, 1600, 1600)
    values = planted.series[0].values
    assert (cause.named.plateau, cause.named.tipped) == pytest.approx((values[100], values[-1]))
    assert cause.sentence.startswith(f"Why it tipped: {said}. {planted.name}")
    assert cause.evidence[0] == cause.named


def test_the_sentence_has_values_limit_and_the_other_hosts() -> None:
    throttled = figure(
        "Throttled", "ratio", THROTTLED, {"m1": from_load(1600, 0.02, 0.96), "m2": lambda load: 0.01}, "etcd"
    )
    assert cause_of(throttled).sentence == (
        "Why it tipped: the CPU quota of m1 was used up. Throttled (etcd) was 96 % at 1,600 leases, and 2 % on the "
        "plateau up to 800 leases; it is saturated above 25 %. On the other hosts it was 1 %."
    )


def test_nothing_is_named_when_every_figure_is_within_its_limit() -> None:
    cause = cause_of(*HEALTHY)
    assert cause.named is None
    assert cause.hosts == []
    assert cause.sentence == (
        "Why it tipped is not known: at 1,600 leases none of the 6 watched metrics of 2 hosts reached its limit."
    )
    assert [each.saturated for each in cause.evidence] == [False] * 6


def test_what_nobody_watched_is_told() -> None:
    cause = cause_of(HEALTHY[0])
    assert cause.unwatched == ["memory", "disk", "network", "file descriptors"]
    assert cause.sentence.endswith("Not watched: memory, disk, network and file descriptors.")


@pytest.mark.parametrize("busy", [lambda load: 1.0, lambda load: 0.85, from_load(1600, 0.88, 0.89)])
def test_a_long_time_of_a_disk_beside_a_busy_cpu_may_be_either(busy: Of) -> None:
    # given fsyncs that get long, a CPU that others kept busy before, and a disk that has time left
    cpu = figure("CPU used", "ratio", USED, {"a": busy, "b": lambda load: 0.1})
    disk = figure("disk busy", "ratio", BUSY, {"a": lambda load: 0.3}, part="vda")
    cause = cause_of(cpu, disk, PLANTED["fsync"][0])
    # then both are named
    assert cause.named is not None
    assert cause.instead is not None
    assert (cause.named.of, cause.instead.of) == ("disk", "CPU")
    assert cause.sentence.startswith(
        "Why it tipped: the disk of a could do no more, or its CPU was used up, for which fsync time waits as well "
        "(CPU used was "
    )


def test_a_disk_that_has_no_time_left_is_named_alone_however_busy_the_cpu_is() -> None:
    cpu = figure("CPU used", "ratio", USED, {"a": lambda load: 1.0})
    cause = cause_of(cpu, PLANTED["disk"][0], PLANTED["fsync"][0])
    assert cause.instead is None
    assert cause.sentence.startswith("Why it tipped: the disk of a could do no more. disk busy (vda) was")


def test_a_long_time_of_a_host_whose_cpu_nobody_watched_is_not_surely_the_disks() -> None:
    elsewhere = figure("CPU used", "ratio", USED, {"b": lambda load: 1.0})
    cause = cause_of(elsewhere, PLANTED["fsync"][0])
    assert cause.sentence.startswith(
        "Why it tipped: the disk of a could do no more, or its CPU was used up, although no metric shows it. fsync time"
    )
    assert cause.instead is None


def test_a_time_is_named_before_the_queue_that_it_lengthens() -> None:
    queue = figure("pending", "count", QUEUE, {"a": from_load(800, 1, 5000)}, window=0.0)
    cause = cause_of(queue, PLANTED["fsync"][0])
    assert cause.named is not None
    assert cause.named.of == "disk"


def test_what_saturates_at_up_to_twice_the_load_of_a_knee_is_named() -> None:
    # given a network that loses packets from 3,200 leases on, and claims that leave their plateau at 1600
    sent_again = figure("sent again", "ratio", SENT_AGAIN, {"a": from_load(3200, 0.0, 0.05)})
    cause = cause_of(*(each for each in HEALTHY if each.name != "sent again"), sent_again)
    # then it is named, with the load at which it was seen
    assert cause.named is not None
    assert (cause.named.of, cause.load, cause.named.since) == ("network", 3200, 3200)
    assert cause.sentence.startswith(
        "Why it tipped: the network of a could do no more. sent again was 5 % at 3,200 leases, and 0 % on the plateau"
    )
    assert cause.sentence.endswith(" At 1,600 leases nothing that was watched was saturated.")
    assert "## Why it tipped: the knee, seen at 3,200 leases" in write_report(
        analyse(watched(tips(), sent_again)), "md"
    )


def test_what_saturates_at_the_knee_is_named_before_what_does_beyond_it() -> None:
    queue = figure("pending", "count", QUEUE, {"a": from_load(1600, 1, 300)}, window=0.0)
    cpu = figure("CPU used", "ratio", USED, {"a": from_load(3200, 0.3, 0.99)})
    cause = cause_of(queue, cpu)
    assert cause.named is not None
    assert (cause.named.of, cause.load) == ("queue", 1600)


def test_what_saturates_at_more_than_twice_the_load_of_a_knee_explains_nothing() -> None:
    # given a knee at 800, and a CPU that is used up at 3200
    cpu = figure("CPU used", "ratio", USED, {"a": from_load(3200, 0.3, 0.99)})
    first, second = analyse(watched(breaks(), cpu)).causes
    assert (first.sign, first.named, first.load) == ("knee", None, 800)
    assert (second.sign, second.load) == ("cliff", 3200)
    assert second.named is not None


def test_a_time_or_a_queue_that_lengthens_after_a_knee_explains_nothing() -> None:
    # given fsyncs and a queue that are as ever at the knee, and long at twice its load
    fsync = figure("fsync time", "seconds", FSYNC, {"a": from_load(3200, 0.004, 0.2)})
    queue = figure("pending", "count", QUEUE, {"a": from_load(3200, 3, 900)}, window=0.0)
    cause = cause_of(fsync, queue)
    assert (cause.named, cause.load) == (None, 1600)


def test_a_missed_threshold_says_nothing_of_larger_loads() -> None:
    # given a target that breaks at once, and a CPU that is used up at twice that load
    run = made_run(
        [
            made_stage(1, 100, {"claim.ok": [300.0] * 90, "claim.error": [300.0] * 90}),
            made_stage(2, 200, {"claim.ok": [300.0] * 90, "claim.error": [300.0] * 90}),
        ]
    )
    cpu = figure("CPU used", "ratio", USED, {"a": from_load(200, 0.1, 0.95)})
    (cause,) = analyse(watched(run, cpu)).causes
    assert (cause.sign, cause.named, cause.load) == ("cliff", None, 100)


def test_a_card_s_long_queue_is_named_before_a_disk_that_is_a_little_late() -> None:
    # given answers that wait 80 ms in a card's queue, and commits that others of the machine made longer
    commits = figure("commit time", "seconds", FSYNC, {"a": from_load(1600, 0.002, 0.012)})
    cause = cause_of(commits, PLANTED["card"][0])
    assert cause.named is not None
    assert (cause.named.of, cause.named.part) == ("network", "eth0")


def test_a_resource_is_named_before_the_times_and_queues_that_it_lengthens() -> None:
    # given a CPU quota that is used up at 1600, and fsyncs and a queue that were long already at 800
    fsync = figure("fsync time", "seconds", FSYNC, {"a": from_load(800, 0.002, 0.5)})
    queue = figure("pending", "count", QUEUE, {"a": from_load(800, 1, 5000)}, window=0.0)
    cause = cause_of(queue, fsync, PLANTED["quota"][0])
    # then the quota is named, and they are told beside it
    assert cause.named is not None
    assert cause.named.of == "CPU quota"
    assert cause.sentence.endswith("Beyond their limits too: fsync time of a and pending of a.")


def test_of_two_resources_the_one_that_saturated_at_a_smaller_load_is_named() -> None:
    # given a disk that is busy from 800 on, and a CPU that is from 1600 on, and more so
    disk = figure("disk busy", "ratio", BUSY, {"a": from_load(800, 0.3, 0.92)})
    cpu = figure("CPU used", "ratio", USED, {"a": from_load(1600, 0.3, 0.99)})
    cause = cause_of(cpu, disk)
    assert cause.named is not None
    assert (cause.named.of, cause.named.since) == ("disk", 800)
    assert "It has been beyond that since 800 leases." in cause.sentence


def test_one_slow_member_is_told_from_the_others() -> None:
    slow = figure(
        "fsync time",
        "seconds",
        FSYNC,
        {"m1": lambda load: 0.002, "m2": from_load(1600, 0.003, 0.3), "m3": lambda load: 0.004},
    )
    cause = cause_of(slow)
    assert cause.hosts == ["m2"]
    assert cause.named is not None
    assert cause.named.others == 0.003
    assert cause.sentence.startswith("Why it tipped: the disk of m2 could do no more, or its CPU")
    assert cause.sentence.count("On the other hosts it was 3 ms.") == 1


def test_what_only_happens_in_a_ramp_shorter_than_the_window_of_a_rate_is_seen() -> None:
    # given loads that are brought up in 3 s, and fsyncs that only happen then, over windows of 4 s
    analysis = analysed(tips)
    stages = [replace(stage, hold_begin=stage.begin + 3) for stage in analysis.run.stages]
    fsync = figure("fsync time", "seconds", FSYNC, {"a": from_load(1600, 0.004, 0.2)})
    since = np.mod(T, STAGE_SECONDS)
    values = [value if 1 <= t < 8 else None for t, value in zip(since, fsync.series[0].values, strict=True)]
    seen = fsync.model_copy(update={"series": [fsync.series[0].model_copy(update={"values": values})]})
    run = replace(watched(analysis.run, seen), stages=stages)
    (cause,) = causes_of(replace(analysis.findings, run=run), analysis.tipping)
    # then the slow ones are named
    assert cause.named is not None
    assert (cause.named.plateau, cause.named.tipped) == (0.004, 0.2)


def test_all_hosts_that_saturated_are_named() -> None:
    both = figure("CPU used", "ratio", USED, {name: from_load(1600, 0.3, 0.95) for name in ("a", "b")})
    cause = cause_of(both)
    assert cause.hosts == ["a", "b"]
    assert cause.sentence.startswith("Why it tipped: the CPU of a and b was used up.")
    assert "On the other hosts" not in cause.sentence


def test_what_was_beyond_its_limit_on_the_plateau_explains_nothing() -> None:
    # given a disk that other programs keep busy all the time, and slow fsyncs that are as slow at the knee
    disk = figure("disk busy", "ratio", BUSY, {"a": lambda load: 0.95})
    fsync = figure("fsync time", "seconds", FSYNC, {"a": from_load(1600, 0.020, 0.030)})
    cause = cause_of(disk, fsync)
    assert cause.named is None
    assert cause.sentence == (
        "Why it tipped is not known: nothing that was watched saturated at 1,600 leases. fsync time of a was beyond "
        "its limit, but it was on the plateau too, or has hardly grown since. Not watched: CPU, memory, network and "
        "file descriptors."
    )


def test_a_time_of_which_nothing_is_known_before_explains_nothing() -> None:
    # given fsyncs that only happen under load, at the smallest of which the target breaks
    fsync = figure("fsync time", "seconds", FSYNC, {"a": from_load(100, float("nan"), 0.020)})
    cause = cause_of(fsync, make=breaks_at_once)
    assert cause.named is None
    assert (
        "fsync time of a was beyond its limit, and it is not known whether it was before." in cause.sentence
    )
    assert "unknown before" in write_report(analyse(watched(breaks_at_once(), fsync)), "md")


def test_at_the_smallest_load_the_time_before_it_is_the_plateau() -> None:
    cause = cause_of(figure("CPU used", "ratio", USED, {"a": from_load(100, 0.1, 0.95)}), make=breaks_at_once)
    assert cause.named is not None
    assert cause.named.plateau == pytest.approx(0.1)
    assert "and 10 % without load" in cause.sentence


def test_a_cliff_beyond_the_knee_has_a_cause_of_its_own() -> None:
    queue = figure("pending", "count", QUEUE, {"a": from_load(800, 1, 300)}, window=0.0)
    memory = figure("free memory", "ratio", MEMORY, {"a": from_load(3200, 0.5, 0.01)}, window=0.0)
    found = analyse(watched(breaks(), queue, memory)).causes
    assert [(cause.sign, cause.load, cause.named.of if cause.named else None) for cause in found] == [
        ("knee", 800, "queue"),
        ("cliff", 3200, "memory"),
    ]


def test_without_figures_the_reader_is_told_how_to_get_them() -> None:
    (cause,) = analysed(tips).causes
    assert (cause.named, cause.load) == (None, None)
    assert cause.sentence == (
        "Why it tipped is not known: no host metrics of the target were collected "
        "(tippingpoint collect RUN --prometheus URL)."
    )


def test_a_target_that_was_not_scraped_when_it_tipped_has_no_cause() -> None:
    gone = figure("CPU used", "ratio", USED, {"a": from_load(1600, 0.1, float("nan"))})
    assert cause_of(gone).sentence == (
        "Why it tipped is not known: no metric with a known limit was collected at 1,600 leases."
    )


def test_a_target_that_did_not_tip_has_no_cause() -> None:
    run = made_run(made_stage(n, size, {"claim.ok": [5.0] * 100}) for n, size in enumerate(SIZES, 1))
    assert analyse(watched(run, PLANTED["cpu"][0])).causes == []


def test_nothing_is_named_where_the_generator_was_the_bottleneck() -> None:
    # given a run that tips, with a worker of the generator that had no CPU time left in the stage that did
    analysis = analysed(tips)
    run = watched(analysis.run, PLANTED["cpu"][0])
    stages = [replace(each, strained="made up") for each in analysis.findings.stages]
    (cause,) = causes_of(replace(analysis.findings, run=run, stages=stages), analysis.tipping)
    # then the target's full CPU is not said to be why
    assert cause.named is None
    assert cause.sentence == (
        "Why it tipped is not known: the generator itself was the bottleneck at 1,600 leases."
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    names=st.lists(st.sampled_from(sorted(PLANTED)), unique=True, max_size=3),
    noise=st.floats(0, 0.05),
    seed=st.integers(0, 999),
)
def test_a_cause_is_named_if_and_only_if_one_was_planted(
    names: Sequence[str], noise: float, seed: int
) -> None:
    # given healthy figures with up to 5 % of noise, and some that saturate at the knee
    random = np.random.default_rng(seed)
    planted = [PLANTED[name][0] for name in names]
    figures = [*(each for each in HEALTHY if each.name not in {one.name for one in planted}), *planted]
    noisy = [
        each.model_copy(
            update={
                "series": [
                    one.model_copy(
                        update={"values": [(v or 0.0) * float(random.normal(1, noise)) for v in one.values]}
                    )
                    for one in each.series
                ]
            }
        )
        for each in figures
    ]
    cause = cause_of(*noisy)
    # then one of those is named, and a resource if there is one
    assert (cause.named is not None) == bool(planted)
    if cause.named is not None:
        waits = [one.limit.wait for one in planted if one.limit is not None]
        assert cause.named.figure in {one.name for one in planted}
        assert cause.named.wait == all(waits)


def test_it_survives_a_file_and_is_in_every_format() -> None:
    run = watched(tips(), *HEALTHY[1:], PLANTED["cpu"][0])
    assert run.resources is not None
    again = Resources.model_validate_json(run.resources.model_dump_json())
    analysis = analyse(replace(run, resources=again))
    sentence = analysis.causes[0].sentence
    (cause,) = json.loads(write_report(analysis, "json"))["causes"]
    assert cause["sentence"] == sentence
    first = cause["evidence"][0]
    assert (first["figure"], first["host"], first["result"]) == ("CPU used", "a", "saturated")
    markdown = write_report(analysis, "md")
    assert sentence in markdown
    assert "## Why it tipped: the knee, seen at 1,600 leases" in markdown
    assert "| CPU used | a | 40 % | 97 % | – | above 90 % | saturated |" in markdown
    page = write_report(analysis, "html")
    assert sentence in page
    assert '<section id="why">' in page
    # and figures that are only held to a limit have no charts and no rows elsewhere
    assert 'id="chart-resources-CPU used"' not in page


def test_a_page_without_figures_has_no_table_of_evidence() -> None:
    page = write_report(analysed(tips), "html")
    assert '<section id="why">' not in page
    assert "no host metrics of the target were collected" in page
