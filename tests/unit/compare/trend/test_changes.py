"""Where series of measurements changed their level."""

from __future__ import annotations

import numpy as np
import pytest

from tippingpoint.compare.trend.changes import Change, Measured, find_changes

RUNS = 40


def scattered(seed: int, sigma: float = 0.02, runs: int = RUNS) -> list[float | None]:
    """Return figures of runs that are alike but for a log-normal scatter."""
    random = np.random.default_rng(seed)
    return [float(value) for value in np.exp(sigma * random.normal(size=runs)) * 5000]


def changed(values: list[float | None], *, at: int, by: float) -> list[float | None]:
    """Return the same figures, `by` times as large from one run on."""
    return [value * by if value is not None and place >= at else value for place, value in enumerate(values)]


def changes_of(*series: list[float | None]) -> list[list[Change]]:
    return find_changes([Measured(values, [0.0] * len(values)) for values in series])


def test_a_change_of_a_tenth_is_found_two_runs_later() -> None:
    # given histories whose last two runs are a tenth slower
    found = [changes_of(changed(scattered(seed, 0.01), at=38, by=1.1))[0] for seed in range(30)]
    # then nearly all are found, at their run, and with their size
    told = [changes[0] for changes in found if changes]
    assert len(told) >= 28
    assert all(change.earliest <= 38 <= change.latest for change in told)
    assert np.median([change.ratio for change in told]) == pytest.approx(1.1, abs=0.01)


def test_runs_that_only_scatter_tell_no_change() -> None:
    # given 60 calls with five series each, of runs that scatter with outliers
    random = np.random.default_rng(4)
    alarms = 0
    for seed in range(60):
        series: list[list[float | None]] = [
            [
                None if value is None else value * (3.0 if random.random() < 0.03 else 1.0)
                for value in scattered(9 * seed + number)
            ]
            for number in range(5)
        ]
        alarms += any(changes_of(*series))
    # then a call in a hundred may tell one: more than 4 of 60 have a chance of one in a thousand
    assert alarms <= 4


def test_one_slow_run_is_no_change() -> None:
    values = scattered(1)
    values[20] = 50_000.0
    assert changes_of(values) == [[]]


def test_a_change_for_a_while_is_two_changes() -> None:
    # given ten slow runs between fast ones
    values = changed(changed(scattered(2), at=15, by=1.3), at=25, by=1 / 1.3)
    # then both ends are found
    (changes,) = changes_of(values)
    assert [change.at for change in changes] == [15, 25]
    assert changes[0].low < 1.3 < changes[0].high
    assert changes[1].low < 1 / 1.3 < changes[1].high


def test_only_the_series_that_changed_is_named() -> None:
    first, second = changes_of(scattered(3), changed(scattered(4), at=20, by=0.8))
    assert first == []
    assert [change.at for change in second] == [20]


def test_runs_without_the_figure_are_passed_over() -> None:
    # given a series that only every second run has
    values: list[float | None] = [
        value if place % 2 == 0 else None for place, value in enumerate(changed(scattered(5), at=20, by=1.5))
    ]
    (changes,) = changes_of(values)
    assert [change.at for change in changes] == [20]


def test_a_change_too_small_for_people_is_not_told() -> None:
    # given runs that hardly scatter, and a change of one in a hundred
    assert changes_of(changed(scattered(6, 0.0001), at=20, by=1.01)) == [[]]


def test_what_is_known_only_roughly_has_to_change_by_more() -> None:
    # given tipping points that a ladder of doubled loads brackets: the same figure in every run but the last two
    values = changed([2828.0] * RUNS, at=38, by=1.1)
    # when each is known to a third of itself
    found = find_changes([Measured(values, [0.2] * RUNS)])
    # then a tenth is within that
    assert found == [[]]


@pytest.mark.parametrize("runs", [0, 1, 2, 3])
def test_too_few_runs_tell_nothing(runs: int) -> None:
    values: list[float | None] = [1.0, 2.0, 4.0][:runs]
    assert changes_of(values) == [[]]


def test_a_step_is_told_as_a_step_and_a_line_as_a_drift() -> None:
    # given histories of which some are slower from one run on, and some by as much slowly, in the middle or all along
    places = np.arange(RUNS)
    shapes = {
        "step": 1.0 * (places >= 20),
        "line": places / (RUNS - 1),
        "way": np.clip((places - 12) / 15, 0, 1),
    }
    drifting: dict[str, list[bool]] = {}
    for name, shape in shapes.items():
        for seed in range(12):
            factors = np.exp(np.log(1.3) * shape)
            values: list[float | None] = [
                (value or 0.0) * float(by) for value, by in zip(scattered(seed, 0.02), factors, strict=True)
            ]
            (changes,) = changes_of(values)
            drifting.setdefault(name, []).append(any(change.drifts for change in changes))
            assert all(change.moved > 0 for change in changes)
            if drifting[name][-1]:
                (drift,) = changes
                assert drift.ratio == pytest.approx(1.3, abs=0.06)
                assert drift.latest - drift.earliest >= 4
    # then nearly all are told for what they are
    assert sum(drifting["step"]) <= 1
    assert sum(drifting["line"]) >= 11
    assert sum(drifting["way"]) >= 10


def remembering(seed: int, share: float, sigma: float = 0.05) -> list[float | None]:
    """Return figures of runs that each have a share of the deviation of the run before."""
    random = np.random.default_rng(seed)
    logs = random.normal(size=RUNS)
    for run in range(1, RUNS):
        logs[run] = share * logs[run - 1] + np.sqrt(1 - share**2) * logs[run]
    return [float(value) for value in np.exp(sigma * logs) * 5000]


def test_runs_that_resemble_the_run_before_rarely_tell_a_change() -> None:
    # given histories without a change, whose runs take over half of the deviation of the run before
    alarms = sum(bool(changes_of(remembering(seed, 0.5))[0]) for seed in range(60))
    # then one in ten or so tells one: more than 13 have a chance of one in a hundred. Where the order of the runs is
    # permuted as if they did not resemble each other, four in ten do, and 13 or fewer have that chance
    assert alarms <= 13


def test_the_interval_of_a_change_knows_that_runs_resemble_each_other() -> None:
    # given such histories, which double in the middle
    found = [changes_of(changed(remembering(seed, 0.5), at=20, by=2.0))[0] for seed in range(60)]
    told = [change for changes in found for change in changes if abs(change.at - 20) <= 1]
    assert len(told) >= 55
    # then nine in ten intervals hold the truth; less than 80 % of them have a chance of one in a hundred
    assert sum(change.low <= 2.0 <= change.high for change in told) >= 0.8 * len(told)


def test_the_newest_level_need_not_outdo_every_slump_there_could_have_been() -> None:
    # given histories whose last two, three or five runs are slower
    told = 0
    for at, by in ((38, 1.2), (37, 1.2), (37, 1.15), (35, 1.1)):
        found = [changes_of(changed(scattered(seed, 0.05), at=at, by=by))[0] for seed in range(60)]
        told += sum(any(abs(change.at - at) <= 2 for change in changes) for changes in found)
    # then three in four are found; if they have to be as rare as slumps at any place, five in eight
    assert told >= 165


def test_a_series_that_wanders_does_not_hide_a_change_of_another() -> None:
    # given a figure whose last three runs are a tenth larger, beside one whose runs repeat nearly all of a deviation
    found = [
        changes_of(changed(scattered(seed), at=37, by=1.1), remembering(seed + 100, 0.95))[0]
        for seed in range(15)
    ]
    # then nearly all are found, as alone
    assert sum(any(abs(change.at - 37) <= 2 for change in changes) for changes in found) >= 13
