"""The leader's agent asks Prometheus about a run: what it says if nobody answers, or nobody can be asked any more."""

from __future__ import annotations

import asyncio
import time

from tippingpoint.agent.figure_collector import FigureCollector
from tippingpoint.agent.prometheus import PrometheusAccess
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.figure_messages import FigureNews, FiguresTold
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.plan.read import parse_plan

NOBODY = PrometheusAccess(url="http://127.0.0.1:1")
PLAN = parse_plan(
    "{name: x, stages: [{leases: 10, hold: 30s}], thresholds: [{figure: etcd-memory, at_most: 1GB, abort: true}]}"
)


def ended() -> SharedRun:
    """A run whose only turn has just been held."""
    run = begin_run(PLAN, ["load-claimer/0", "load-claimer/1"], time.time() - 60)
    begin = time.time() - 40
    turn = Turn(number=1, stage=1, kind="ramp", of=2, begin=begin, hold=begin + 1, lasts=30)
    return run.model_copy(update={"turns": [turn], "started": begin})


async def told(run: SharedRun, access: PrometheusAccess | None) -> FigureNews:
    """The news of an agent that leads a run, as the charm hears them that comes when it is woken."""
    woken = asyncio.Event()
    asking = FigureCollector(woken.set)
    asking.tell(run, access, 0.0)
    before = asking.news()
    assert before is not None
    assert (before.run, before.values, before.measuring) == (run.id, [], True)
    await woken.wait()
    news = asking.news()
    await asking.close()
    assert news is not None
    return news


async def test_without_an_answer_the_figures_of_the_last_turn_are_known_to_be_unknown() -> None:
    news = await told(ended(), NOBODY)
    (value,) = news.values
    assert (value.stage, value.name, value.value) == (1, "etcd-memory", None)
    assert value.why.startswith("http://127.0.0.1:1: ")
    assert (news.measuring, news.abort) == (False, "")


async def test_without_a_relation_the_run_goes_on_and_says_so() -> None:
    (value,) = (await told(ended(), None)).values
    assert (value.value, value.why) == (None, "no Prometheus is related any more")


async def test_files_that_cannot_be_used_are_the_reason(tmp_path: object) -> None:
    access = PrometheusAccess(url="https://127.0.0.1:1", ca=f"{tmp_path}/gone.pem")
    (value,) = (await told(ended(), access)).values
    assert value.value is None
    assert "gone.pem" in value.why


async def test_nobody_is_asked_about_a_run_without_figures_of_another_leader_or_that_is_known() -> None:
    asking = FigureCollector(lambda: None)
    run = ended()
    plain = begin_run(parse_plan("{name: x, stages: [{leases: 10, hold: 30s}]}"), run.units, time.time())
    for other in (None, plain, run.model_copy(update={"over": True})):
        asking.tell(other, NOBODY, 0.0)
        assert asking.news() is None
    known = FiguresTold(values=[(1, 0, 5e8, 0, None, 0)])
    asking.tell(run.model_copy(update={"figures": known}), NOBODY, 0.0)
    assert asking.news() == FigureNews(run=run.id)
    await asking.close()
