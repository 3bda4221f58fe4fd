"""`after: recover` on a real LXD, by way of a proxy that makes it fail beyond a number of containers, or a rate."""

from __future__ import annotations

import json
import time
from pathlib import Path

from aiohttp import web

from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import Fail, Forward, LxdProxy
from tests.functional.lxd.lxd_runs import everything, only_a_stage, run_at, spawn_plan
from tests.functional.program import only_run
from tippingpoint.analysis.analyse import analyse

BUSY = Fail("too much of it")


class Crowded:
    """Refuses to list a project that has more than so many containers."""

    def __init__(self, most: int) -> None:
        self._most = most

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        answer = await forward()
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        listed: dict[str, list[str]] = json.loads(answer.body)
        return await BUSY(proxy, request, forward) if len(listed["metadata"]) > self._most else answer


class Bucket:
    """Refuses what comes faster than so many a second, after as many at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._tokens = rate
        self._since = time.monotonic()

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        now = time.monotonic()
        self._tokens = min(self._rate, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens < 1:
            return await BUSY(proxy, request, forward)
        self._tokens -= 1
        return await forward()


def test_containers_are_removed_until_thresholds_hold(lxd_single: LxdLab, tmp_path: Path) -> None:
    # given a server whose users cannot list more than four containers, and plans for two, then six
    before = everything(lxd_single)
    plan = spawn_plan(
        tmp_path,
        workload={"until": "created", "observe_every": "500ms"},
        stages=[*only_a_stage(2, "2s"), *only_a_stage(6, "2s")],
        thresholds=[{"operation": "list", "error_rate": 0.1}],
        after="recover",
        workers=1,
    )
    with LxdProxy(lxd_single) as proxy:
        proxy.add("GET", r"^/1\.0/instances\?.*recursion=2", Crowded(4))
        # when it is run
        done = run_at(proxy, "run", plan, "--out", tmp_path / "runs")
    # then there are five containers for as long as a hold, and four until lists succeed for a while
    measured = only_run(tmp_path / "runs")
    comeback = analyse(measured).comeback
    assert comeback is not None, done.stdout + done.stderr
    assert (comeback.broken, comeback.before, comeback.back_at, comeback.metastable) == (6, 2, 4, False)
    # (a load that says nothing of LXD, as this machine was late, comes again)
    assert [(step.size, step.held) for step in comeback.steps if not step.repeated] == [(5, False), (4, True)]
    removed = {5: 0, 4: 0}
    for stage in measured.stages:
        if stage.kind == "recover" and stage.size < comeback.broken:
            assert stage.gauges["held"] == stage.size
            removed[round(stage.size)] += stage.count("delete")
    assert removed == {5: 1, 4: 1}
    assert everything(lxd_single) == before


def test_a_rate_goes_down_until_thresholds_hold(lxd_single: LxdLab, tmp_path: Path) -> None:
    # given a server that takes two containers a second, and plans for one a second, then for eight
    before = everything(lxd_single)
    plan = spawn_plan(
        tmp_path,
        workload={"until": "created", "concurrency": None, "cycle": True, "retries": {"other": 0}},
        stages=[{"instances": count, "rate": rate, "hold": "500ms"} for count, rate in ((2, 1), (8, 8))],
        thresholds=[{"operation": "launch", "error_rate": 0.2}],
        after="recover",
        workers=1,
    )
    with LxdProxy(lxd_single) as proxy:
        proxy.add("POST", r"^/1\.0/instances", Bucket(2))
        # when it is run
        done = run_at(proxy, "run", plan, "--out", tmp_path / "runs")
    # then it goes down to what the server takes, each rate for as long as the one that broke
    measured = only_run(tmp_path / "runs")
    comeback = analyse(measured).comeback
    assert comeback is not None, done.stdout + done.stderr
    assert (comeback.broken, comeback.before, comeback.metastable) == (8, 1, False)
    assert comeback.back_at in (4, 2, 1)
    # a step in which this machine was late is tried again
    assert [*dict.fromkeys(step.size for step in comeback.steps)][:3] == [7.2, 6, 4], comeback
    made = {(stage.size, stage.attempts("launch")) for stage in measured.stages if stage.kind == "recover"}
    assert {(7.2, 8), (6, 6), (4, 4)} <= made
    assert made - {(7.2, 8), (6, 6), (4, 4)} <= {(2, 2), (1, 1)}
    assert everything(lxd_single) == before
