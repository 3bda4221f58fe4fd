"""The leader's agent judges the loads of a search that units share, beside everything else that it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tippingpoint.agent.judging import Judging
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport
from tippingpoint.plan.read import parse_plan

UNITS = ["load-claimer/0", "load-claimer/1"]
SEARCH = begin_run(
    parse_plan(
        "{name: search, workload: {renew_time: 5s}, find: {start: 10, limit: 1000, hold: 30s},"
        " thresholds: [{operation: extend, p99: 50ms}]}"
    ),
    UNITS,
    1000.0,
)
TURN = Turn(number=1, stage=1, kind="find", of=2, begin=1010.0, hold=1020.0, lasts=30.0, load=10, fresh=True)


class Desk:
    """A judging agent, and how often it had news."""

    def __init__(self, folder: Path) -> None:
        self.news = 0
        self.told = asyncio.Event()
        self.judging = Judging(folder, self._wake)

    def _wake(self) -> None:
        self.news += 1
        self.told.set()

    async def judged(self, run: SharedRun, after: int, reports: dict[str, ProbeReport]) -> NextLoad:
        """What follows a turn, as a charm hears it that comes back when it is woken."""
        self.told.clear()
        assert self.judging.ask(run, after, {}, reports) is None
        await self.told.wait()
        following = self.judging.ask(run, after, {}, reports)
        assert following is not None
        return following


async def test_the_first_load_is_the_plans_and_is_told_once_it_is_known(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    following = await desk.judged(SEARCH, 0, {})
    assert (following.after, following.load, following.fresh, following.hold) == (0, 10, True, 30)
    assert desk.news == 1
    # and asking again begins nothing anew
    assert desk.judging.ask(SEARCH, 0, {}, {}) == following
    assert desk.news == 1


async def test_a_load_in_which_a_unit_was_lost_is_tried_again_whatever_was_known_before(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    run = SEARCH.model_copy(update={"turns": [TURN], "started": 1010.0})
    without = await desk.judged(run, 1, {})
    assert without.stop == "load-claimer/0: its figures of turn 1 are not known"
    lost = run.model_copy(update={"missing": {UNITS[1]: "the unit was removed"}})
    again = await desk.judged(lost, 1, {})
    assert (again.load, again.fresh, again.probe, again.stop) == (10, True, None, "")


async def test_what_cannot_be_judged_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run = SEARCH.model_copy(update={"turns": [TURN], "started": 1010.0})
    nonsense = {unit: ProbeReport(run=run.id, turn=1, digest="nonsense") for unit in UNITS}
    following = await desk.judged(run, 1, nonsense)
    assert following.stop.startswith("turn 1 cannot be judged: ")
    assert "\n" not in following.stop
    assert [*tmp_path.iterdir()] == []
    await desk.judging.close()
