"""What becomes of a profile that a target does not give. A real etcd that gives one is in the functional tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.made.made_profiles import made_profile
from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.play.profiler import MOST_STAGES, Profiler
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.pprof import LARGEST_FILE
from tippingpoint.rundir.profiles import profiles_not_taken, taken_profiles

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CPU = made_profile({("main.main",): 5})
LOCKS = made_profile({("sync.(*Mutex).Unlock", "main.main"): 5}, "lock wait")


@asynccontextmanager
async def served(answer: Handler) -> AsyncIterator[str]:
    """A server whose pprof answers so; yields its URL."""
    app = web.Application()
    app.router.add_get("/debug/pprof/{name}", answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Heard(RunnerEvents):
    """The events of a run."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        self.events.append({"t": t, "event": event, **fields})

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(each.kind, each.problem.partition(": ")[2]) for each in profiles_not_taken(self.events)]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def record(tmp_path: Path, heard: Heard) -> Record:
    made = write_run(tmp_path / "profiled", [MadeStage(10)])
    found = Record("x", tmp_path, made.name, heard)
    found.open(Manifest.load(made))
    return found


async def profile(record: Record, url: str, *stages: int) -> None:
    profiler = Profiler([url], True, record)
    try:
        for stage in stages:
            profiler.begin(stage, 3.0)
            await profiler.taken.wait()
    finally:
        await profiler.close()


async def go(request: web.Request) -> web.StreamResponse:
    """What Go answers."""
    assert request.query["seconds"] == "3"
    return web.Response(body=CPU if request.match_info["name"] == "profile" else LOCKS)


async def test_a_profile_of_cpu_and_one_of_locks_are_kept(record: Record, heard: Heard) -> None:
    async with served(go) as url:
        await profile(record, url, 4)
    taken = taken_profiles(heard.events)
    assert {each.kind for each in taken} == {"CPU", "lock wait"}
    assert {(each.stage, each.member, each.seconds) for each in taken} == {(4, 1, 3.0)}
    assert (record.directory / "profile-4-cpu-1.pb.gz").read_bytes() == CPU
    assert (record.directory / "profile-4-lock-1.pb.gz").read_bytes() == LOCKS
    assert heard.problems == []


async def test_a_server_without_pprof_is_asked_once(record: Record, heard: Heard) -> None:
    asked: list[str] = []

    async def nothing(request: web.Request) -> web.StreamResponse:
        asked.append(request.match_info["name"])
        return web.Response(status=404, text="404 page not found")

    async with served(nothing) as url:
        await profile(record, url, 1, 2)
    assert sorted(asked) == ["mutex", "profile"]
    assert sorted(heard.problems) == [
        ("CPU", "HTTP 404: pprof is not enabled there"),
        ("lock wait", "HTTP 404: pprof is not enabled there"),
    ]
    assert [*record.directory.glob("profile-*")] == []


async def test_a_server_that_is_busy_is_asked_again_in_the_next_stage(record: Record, heard: Heard) -> None:
    busy = [True, True]

    async def once(request: web.Request) -> web.StreamResponse:
        if busy:
            busy.pop()
            return web.Response(status=500, text="Could not enable CPU profiling: already in use\n")
        return await go(request)

    async with served(once) as url:
        await profile(record, url, 1, 2)
    assert heard.problems[0][1] == "HTTP 500: Could not enable CPU profiling: already in use"
    assert {each.stage for each in taken_profiles(heard.events)} == {2}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "is no profile"),
        (bytes(LARGEST_FILE + 1), "/debug/pprof/profile: an answer of more than 8 MiB"),
        (made_profile({("main.main",): 5}, seconds=0), "it tells of each CPU since its start only"),
    ],
    ids=["page", "large", "since start"],
)
async def test_what_is_no_profile_is_not_kept(record: Record, heard: Heard, body: bytes, why: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body) if request.match_info["name"] == "profile" else await go(request)

    async with served(answer) as url:
        await profile(record, url, 1)
    assert heard.problems == [("CPU", why)]
    assert [path.name for path in record.directory.glob("profile-*")] == ["profile-1-lock-1.pb.gz"]


async def test_nobody_at_the_address_is_told_in_a_line(record: Record, heard: Heard) -> None:
    await profile(record, "http://127.0.0.1:1", 1)
    assert {problem for _, problem in heard.problems} == {"Connection refused"}


async def test_a_run_that_ends_does_not_wait_for_a_profile(record: Record, heard: Heard) -> None:
    asked = asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with served(never) as url:
        profiler = Profiler([url], True, record)
        profiler.begin(1, 3.0)
        await asked.wait()
        assert not profiler.taken.is_set()
        await profiler.close()
    assert heard.events == []


async def test_no_more_than_a_hundred_stages_are_profiled(record: Record, heard: Heard) -> None:
    asked = 0

    async def count(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=500)

    async with served(count) as url:
        await profile(record, url, *range(1, MOST_STAGES + 20))
    assert asked == 2 * MOST_STAGES
