"""Resources of several runs' targets at the same loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage
from tippingpoint.compare.compare import compare
from tippingpoint.compare.resources import ResourceComparison, compare_resources
from tippingpoint.rundir.resources import FigureData, Resources, Series
from tippingpoint.rundir.results import RunData

SIZES = (1000, 2000, 4000)
T = [float(t) for t in range(-30, int(len(SIZES) * STAGE_SECONDS) + 15, 3)]
Course = Callable[[float], float | None]


def load(t: float) -> int:
    """The leases that are held at a moment of these runs."""
    return SIZES[int(t // STAGE_SECONDS)] if 0 <= t < len(SIZES) * STAGE_SECONDS else 0


def figure(name: str, courses: Mapping[tuple[str, str], Course], window: float = 0.0) -> FigureData:
    series = [
        Series(host=host, part=part, values=[course(t) for t in T])
        for (host, part), course in courses.items()
    ]
    return FigureData(
        name=name,
        title=name.capitalize(),
        unit="bytes",
        meaning="Made up.",
        pack="made",
        window=window,
        series=series,
    )


def run_with(title: str, *figures: FigureData, sizes: tuple[int, ...] = SIZES) -> RunData:
    stages = [made_stage(n, size, {"claim.ok": [5.0] * 50}) for n, size in enumerate(sizes, start=1)]
    resources = Resources(
        source="Prometheus 2.42.0", step=3, t=T, leader=[(0.0, "m1")], figures=list(figures)
    )
    return replace(made_run(stages, title=title), resources=resources)


def memory(each: float, leader: float = 2.0, name: str = "etcd-memory") -> FigureData:
    """So many bytes for each lease on every member, and so many times as many on the leader."""
    courses: dict[tuple[str, str], Course] = {
        (f"m{n}", ""): lambda t, n=n: each * load(t) * (leader if n == 1 else 1) for n in (1, 2, 3)
    }
    return figure(name, courses)


def only(runs: list[RunData]) -> ResourceComparison:
    (found,) = compare_resources(runs)
    return found


def test_every_load_has_the_mean_of_its_hosts_and_the_leader() -> None:
    found = only([run_with("a", memory(100)), run_with("b", memory(25, leader=1))])
    assert found.sizes == [1000, 2000, 4000]
    assert [level and level.typical for level in found.levels[0]] == pytest.approx(
        [400e3 / 3, 800e3 / 3, 1600e3 / 3]
    )
    assert [level and level.leader for level in found.levels[0]] == pytest.approx([200e3, 400e3, 800e3])
    assert [ratio and ratio.ratio for ratio in found.ratios[0]] == pytest.approx([25 / (400 / 3)] * 3)


def test_the_sentence_tells_what_was_different_most_of_the_time_and_no_more() -> None:
    runs = [
        run_with("a", memory(100), memory(70, name="host-cpu")),
        run_with("b", memory(25), memory(70, name="host-cpu")),
    ]
    repeats = [[run] * 3 for run in runs]
    assert compare(repeats).sentence.endswith("; etcd-memory 0.25x at 4,000 leases.")
    third = [run_with("c", memory(400))] * 3
    assert "etcd-memory 0.25x (b) to 4x (c) at 4,000 leases" in compare([*repeats, third]).sentence
    assert "memory" not in compare(runs).sentence, "one run each"


def test_a_figure_that_goes_up_and_down_as_widely_in_both_runs_is_not_told() -> None:
    def saw(height: float) -> FigureData:
        return figure("etcd-memory", {("m1", ""): lambda t: 100 + height * (t % 30)})

    found = only([run_with("a", saw(10)), run_with("b", saw(12))])
    ratio = found.ratios[0][-1]
    assert ratio is not None
    assert ratio.low < 1 < ratio.ratio < ratio.high
    assert "memory" not in compare([run_with("a", saw(10)), run_with("b", saw(12))]).sentence


def test_what_a_rate_averages_over_belongs_to_the_load_of_that_time() -> None:
    # given a rate over 15 s, which a stage's own load has to itself from 15 s into it up to its end
    def course(t: float) -> float:
        return float(load(t - 1)) if (t - 1) % STAGE_SECONDS >= 14 else 9e9

    rate = figure("network", {("m1", ""): course}, window=15)
    found = only([run_with("a", rate), run_with("b", rate)])
    assert [level and (level.low, level.high) for level in found.levels[0][:2]] == [
        (1000, 1000),
        (2000, 2000),
    ]


def test_parts_of_the_same_name_are_compared_and_others_taken_together() -> None:
    processes = figure(
        "process-memory", {("m1", part): lambda _, part=part: len(part) for part in ("etcd", "juju-d")}
    )
    fewer = figure("process-memory", {("m1", "etcd"): lambda _: 8.0})
    assert [(found.part, found.ratios[0][0] and found.ratios[0][0].ratio) for found in compare_resources(
        [run_with("a", processes), run_with("b", fewer)]
    )] == [("etcd", 2.0)]  # fmt: skip
    disks = [
        figure("disk", {("m1", part): lambda _: 3.0 for part in parts})
        for parts in (("sda", "sdb"), ("vda",))
    ]
    found = only([run_with("a", disks[0]), run_with("b", disks[1])])
    assert (found.part, found.ratios[0][0] and found.ratios[0][0].ratio) == ("", 0.5)


def test_figures_of_two_packs_that_are_called_the_same_are_told_apart() -> None:
    def of(pack: str, name: str, title: str) -> FigureData:
        return memory(1.0, name=name).model_copy(update={"pack": pack, "title": title})

    cpu = [of("nova", "nova-cpu", "CPU"), of("neutron", "neutron-cpu", "CPU")]
    run = run_with("one", *cpu, of("nova", "nova-memory", "Resident memory"))

    compared = compare_resources([run, run])

    assert [each.title for each in compared] == ["CPU (nova)", "CPU (neutron)", "Resident memory"]


def test_what_only_one_run_has_is_left_out_and_no_run_needs_any() -> None:
    without = replace(run_with("b"), resources=None)
    assert compare_resources([run_with("a", memory(100)), without]) == []
    assert compare_resources([without, without]) == []
    assert compare([run_with("a", memory(100)), without]).sentence == (
        "a and b passed 4,000 leases, the largest tried. One run each: differences between runs are not known."
    )
    assert only([run_with("a", memory(100)), run_with("b", memory(100), sizes=(500, 1000, 1500))]).sizes == [
        *(500, 1000, 1500, 2000, 4000)
    ]


def test_a_figure_that_was_zero_before_has_no_ratio() -> None:
    found = only([run_with("a", memory(0)), run_with("b", memory(10))])
    assert found.ratios == [[None, None, None]]
    assert found.shared == []


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    values=st.lists(
        st.lists(st.one_of(st.none(), st.floats(0, 1e12)), min_size=len(T), max_size=len(T)),
        min_size=2,
        max_size=4,
    )
)
def test_whatever_was_gathered_a_ratio_lies_in_its_range(values: list[list[float | None]]) -> None:
    runs = [
        run_with(
            str(n),
            FigureData(
                name="made",
                title="Made",
                unit="count",
                meaning="",
                pack="",
                series=[Series(host="m1", values=of_run)],
            ),
        )
        for n, of_run in enumerate(values)
    ]
    for found in compare_resources(runs):
        for of_run in found.ratios:
            for ratio in of_run:
                assert ratio is None or ratio.low <= ratio.ratio * (1 + 1e-9)
                assert ratio is None or ratio.ratio <= ratio.high * (1 + 1e-9)
    assert compare(runs).sentence
