"""What is gathered from a Prometheus that does what a real one does not on demand: fall silent, answer rubbish."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.errors import UserError
from tippingpoint.monitoring import gather as gathering
from tippingpoint.monitoring.gather import gather_resources, gather_run
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.query_packs import Pack, load_pack
from tippingpoint.rundir.clock import boot_id, since_boot
from tippingpoint.rundir.resources import Resources
from tippingpoint.rundir.results import RunData, load_run

STARTED = 1_790_000_000.0
PACK = """
name: made
title: Made
meaning: Made up for a test
targets: []
leader: leads{$selector}
figures:
  - {name: memory, title: Memory, unit: bytes, meaning: RSS, source: the test, expr: "memory{$selector}"}
  - {name: load, title: Load, unit: count, meaning: Load, source: the test, expr: "load{$selector}"}
"""
Answer = Callable[[web.Request, str], Awaitable[web.StreamResponse]]
"""What a request is answered; the query is empty for what is none."""


async def gathered(answer: Answer, pack: Pack | None = None) -> Resources:
    """What is gathered of ten minutes from a server that answers so."""
    async with served(answer) as prometheus:
        packs = [pack or load_pack(PACK, "made")]
        return await gather_resources(prometheus, packs, STARTED - 60, STARTED + 540, STARTED)


@asynccontextmanager
async def served(answer: Answer) -> AsyncGenerator[Prometheus]:
    async def handle(request: web.Request) -> web.StreamResponse:
        form = await request.post() if request.method == "POST" else {}
        return await answer(request, str(form.get("query", "")))

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        async with Prometheus(f"http://127.0.0.1:{port}") as prometheus:
            yield prometheus
    finally:
        await runner.cleanup()


def matrix(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> web.Response:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})


async def sound(request: web.Request, query: str) -> web.StreamResponse:
    """One host with a value each 15 s."""
    if request.path.endswith("buildinfo"):
        return web.json_response({"status": "success", "data": {"version": "2.42.0"}})
    if request.path.endswith("/query"):
        now = time.time()
        return web.json_response(
            {"status": "success", "data": {"resultType": "scalar", "result": [now, f"{now}"]}}
        )
    form = await request.post()
    start, end, step = (float(str(form[name])) for name in ("start", "end", "step"))
    moments = [start + place * step for place in range(int((end - start) / step) + 1)]
    if "timestamp(up" in query:
        return matrix(({"host": "a", "job": "j"}, [(t, f"{t // 15 * 15}") for t in moments]))
    if "up{" in query:
        return matrix(({"host": "a", "job": "j"}, [(t, "1") for t in moments]))
    return matrix(({"host": "a"}, [(t, "1") for t in moments]))


async def test_what_is_sound_is_there() -> None:
    told = await gathered(sound)
    assert (told.source, told.step, len(told.t)) == ("Prometheus 2.42.0", 15.0, 41)
    assert [figure.name for figure in told.figures] == ["memory", "load", "scrape-duration"]
    assert told.leader == [(-60.0, "a")]
    assert told.missing == []


async def test_a_rate_with_a_cost_per_operation_is_gathered_for_each_scrape_too() -> None:
    # given a server whose rates differ by their window: over a minute, and over the two scrapes of one step
    figure = (
        "  - {name: cpu, title: CPU, unit: cores, meaning: CPU, source: the test, cost: operations, "
        'expr: "rate(cpu{$selector}[$window])"}\n'
    )

    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if "rate(cpu" not in query:
            return await sound(request, query)
        form = await request.post()
        start, step = float(str(form["start"])), float(str(form["step"]))
        value = {"[60s]": "4", "[30s]": "2"}[query[query.index("[") : query.index("]") + 1]]
        return matrix(({"host": "a"}, [(start + place * step, value) for place in range(41)]))

    told = await gathered(answer, load_pack(PACK + figure, "made"))
    cpu = told.figure("cpu")
    assert cpu is not None
    # then both are there, and where a step of the latter ends: half a scrape before its moment, on average
    assert {*cpu.series[0].values} - {None} == {4.0}
    assert {*cpu.slices[0].values} - {None} == {2.0}
    assert cpu.slice_lag == 7.5
    memory = told.figure("memory")
    assert memory is not None
    assert memory.slices == []


async def test_a_figure_that_fails_is_missing_and_the_others_are_there() -> None:
    # given a Prometheus that cannot answer one of the queries
    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if "memory{" in query:
            return web.json_response(
                {"status": "error", "error": "query processing would load too many samples"}
            )
        return await sound(request, query)

    # when it is asked
    told = await gathered(answer)
    # then that one is missing, with its words
    assert [figure.name for figure in told.figures] == ["load", "scrape-duration"]
    ((what, why),) = told.missing
    assert what == "Made: Memory"
    assert why.endswith("query processing would load too many samples")


async def test_a_host_with_infinite_values_is_missing_by_name_and_not_dropped() -> None:
    # given a host that is infinite from the middle on, and another that always is
    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if "memory{" not in query:
            return await sound(request, query)
        form = await request.post()
        start, end, step = (float(str(form[name])) for name in ("start", "end", "step"))
        moments = [start + place * step for place in range(int((end - start) / step) + 1)]
        half = [(t, "1" if t < STARTED + 240 else "+Inf") for t in moments]
        return matrix(({"host": "a"}, half), ({"host": "b"}, [(t, "+Inf") for t in moments]))

    # when it is gathered
    told = await gathered(answer)
    # then the finite values are there, and what is missing says of whom
    memory = next(figure for figure in told.figures if figure.name == "memory")
    assert [series.host for series in memory.series] == ["a"]
    assert memory.series[0].values.count(None) == 21
    assert told.missing == [("Made: Memory", "b was infinite at 41 of 41 moments (and 1 more)")]


async def test_one_that_is_restarting_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a Prometheus that is not there for the first question of what it scraped
    monkeypatch.setattr(gathering, "AGAIN_AFTER", 0.01)
    asked: list[str] = []

    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        asked.append(query)
        if "timestamp(up" in query and sum("timestamp(up" in earlier for earlier in asked) == 1:
            return web.Response(status=503, text="Service Unavailable")
        return await sound(request, query)

    # then nothing is missing
    assert (await gathered(answer)).missing == []


async def test_one_that_answers_rubbish_from_the_first_is_asked_no_more() -> None:
    # given something that is no Prometheus
    asked: list[str] = []

    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(text="<html>It works!</html>")

    # when it is asked
    told = await gathered(answer)
    # then all is missing, and two questions were enough to know
    assert told.figures == []
    assert {what for what, _ in told.missing} >= {"Made: Memory", "Made: Load"}
    assert all("garbage" in why for _, why in told.missing)
    assert len(asked) == 2


async def test_one_that_falls_silent_takes_no_longer_than_all_figures_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a Prometheus that never answers what it is asked of figures
    monkeypatch.setattr(gathering, "GATHER_WITHIN", 1.0)

    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if "memory{" in query or "load{" in query:
            await asyncio.Event().wait()
        return await sound(request, query)

    # when they are gathered, then they are missing, and say why
    told = await gathered(answer)
    assert told.figures == []
    assert tuple(what for what, _ in told.missing[:2]) == ("Made: Memory", "Made: Load")
    assert all("within 1 s" in why for _, why in told.missing[:2])


@settings(max_examples=60, deadline=None)
@given(
    data=st.recursive(
        st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(
                st.sampled_from(["resultType", "result", "metric", "values", "host", "matrix", "version"]),
                inner,
            ),
        ),
        max_leaves=20,
    )
)
async def test_whatever_is_answered_there_are_resources(data: Any) -> None:
    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        return web.Response(text=json.dumps({"status": "success", "data": data}))

    told = await gathered(answer)
    assert told.figures == []
    assert told.missing


@settings(max_examples=60, deadline=None)
@given(
    series=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["host", "job", "vhost"]), st.text(max_size=4)),
            st.lists(
                st.tuples(
                    st.floats(-1e6, 1e6),
                    st.one_of(
                        st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1", "1e308"]),
                        st.floats(-1e9, 1e12).map(str),
                    ),
                ),
                max_size=8,
            ),
        ),
        max_size=6,
    )
)
async def test_whatever_was_sampled_there_are_resources(
    series: list[tuple[dict[str, str], list[tuple[float, str]]]],
) -> None:
    # given series as no exporter gives them: any hosts, twice the same, moments beyond what was asked, no numbers
    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if "query_range" not in request.path:
            return await sound(request, query)
        return matrix(*((labels, [(STARTED + t, value) for t, value in values]) for labels, values in series))

    # then what comes of them is whole
    told = await gathered(answer)
    assert Resources.model_validate_json(told.model_dump_json()) == told


async def gathered_of(run: RunData, ahead: float) -> Resources:
    """What is gathered of a run from a Prometheus whose clock is so far ahead of this machine's."""

    async def answer(request: web.Request, query: str) -> web.StreamResponse:
        if request.path.endswith("/query"):
            now = time.time() + ahead
            return web.json_response(
                {"status": "success", "data": {"resultType": "scalar", "result": [now, f"{now}"]}}
            )
        return await sound(request, query)

    async with served(answer) as prometheus:
        return await gather_run(run, prometheus)


@pytest.mark.parametrize("ours", [0.0, -600.0, 3600.0])
@pytest.mark.parametrize("theirs", [0.0, 3600.0, -86_400.0])
async def test_samples_are_joined_by_the_time_that_has_passed_whatever_clocks_said(
    ours: float, theirs: float, tmp_path: Path
) -> None:
    # given a run of this machine that began 100 s ago, by a clock that was wrong then
    run = load_run(
        write_run(
            tmp_path,
            [MadeStage(100)],
            started=time.time() - 100.0 + ours,
            ended=time.time() - 90.0 + ours,
            boot=boot_id(),
            began_after_boot=since_boot() - 100.0,
        )
    )
    # when its resources are gathered from a Prometheus whose clock is another one
    found = await gathered_of(run, theirs)
    # then they are those of the run and of what was before and after it
    assert found.corrected
    assert found.t[0] == pytest.approx(-120.0, abs=5.0)
    assert found.t[-1] == pytest.approx(70.0, abs=20.0)
    assert found.figure("scrape-duration") is not None


async def test_a_run_of_another_machine_that_began_later_than_now_is_refused_in_a_line(
    tmp_path: Path,
) -> None:
    begun = time.time() + 3600.0
    run = load_run(write_run(tmp_path, [MadeStage(100)], started=begun, ended=begun + 10, boot="another"))
    with pytest.raises(
        UserError, match=r"began 60m after Prometheus' present time: expected clocks that agree"
    ):
        await gathered_of(run, 0.0)


async def test_a_run_of_another_machine_is_joined_by_its_clock_as_it_was_at_its_end(tmp_path: Path) -> None:
    begun = time.time() - 700.0
    stepped = {"t": 2.0, "event": "clock", "ahead": 600.0, "asleep": 0.0}
    run = load_run(write_run(tmp_path, [MadeStage(100)], started=begun, ended=begun + 10, events=[stepped]))
    found = await gathered_of(run, 0.0)
    assert not found.corrected
    assert found.t[0] == pytest.approx(-120.0, abs=1.0)
    assert found.t[-1] == pytest.approx(70.0, abs=20.0)
