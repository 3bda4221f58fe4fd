"""The spawn workload on a simulated Juju controller, or on the real one that TIPPINGPOINT_JUJU_CONTROLLER names
(then without the tests of faults only a simulator has)."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_access import REAL, run, user_of
from tests.functional.juju.workers import Workers
from tippingpoint.errors import TargetError
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.recorder import Recorded, Recorder
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.model import ModelAdmin
from tippingpoint.targets.juju.grow import JujuSpawn
from tippingpoint.targets.juju.hollow import make_model
from tippingpoint.targets.juju.removal import remove_fleet
from tippingpoint.workloads.schedule import Schedule

SMALL = {"machines": 2, "applications": 4, "units": 3, "relations": 4, "over": 0.2}
LESS = {"machines": 1, "applications": 2, "units": 2, "relations": 0, "over": 0.2}
NOTHING = {"machines": 0, "applications": 0, "over": 0}


class Scene(Workers):
    """Workers on a model of their own."""

    def __init__(
        self, access: ControllerAccess, prefix: str, model: str, plan: GrowPlan, workers: int
    ) -> None:
        super().__init__(plan, workers, partial(JujuSpawn, plan, access, model, prefix))
        self.access = access
        self.model = model

    async def open(self) -> None:
        for load in self.loads:
            await load.open()
        await self.prepare(fresh=False)

    def revise(self, plan: GrowPlan) -> None:
        """From the next stage on, it is this part of the plan."""
        self.plan = plan
        for load in self.loads:
            load.revise(plan)

    async def admin(self, client: ApiClient) -> ModelAdmin:
        return await ModelAdmin.open(client, self.access, self.model)

    async def status(self) -> dict[str, Any]:
        client = ApiClient(self.access.addresses, self.access.ca)
        try:
            return await (await self.admin(client)).full_status()
        finally:
            await client.close()

    async def shape(self) -> dict[str, Any]:
        """How many machines, applications, units and relations between applications there are."""
        status = await self.status()
        applications = status["applications"].values()
        return {
            "machines": len(status["machines"]),
            "applications": len(applications),
            "units": sorted(len(application["units"] or {}) for application in applications),
            "relations": sum(len(relation["endpoints"]) == 2 for relation in status["relations"] or []),
        }

    async def charms(self) -> set[str]:
        """The URLs of the charms that the applications are of."""
        return {application["charm"] for application in (await self.status())["applications"].values()}

    def recorded(self) -> dict[str, Recorded]:
        """What was recorded since the last time, without the generator's own."""
        return {name: h for name, h in self.recorder.drain().items() if not name.startswith("generator.")}

    def counts(self) -> dict[str, int]:
        """How often each operation ended how."""
        beside = (".service", DELAYED, FREED)
        return {name: h.total for name, h in self.recorded().items() if not name.endswith(beside)}


@asynccontextmanager
async def scene(
    access: ControllerAccess, stages: list[dict[str, Any]], workers: int = 1, **workload: Any
) -> AsyncGenerator[Scene]:
    """A run's workers in a model of their own; all of it is gone afterwards."""
    prefix = f"tp{secrets.token_hex(4)}"
    plan = GrowPlan.model_validate(
        {
            "name": "spawn",
            "target": {"kind": "juju"},
            "workload": {"kind": "grow", "observe_every": 0, **workload},
            "stages": stages,
        }
    )
    model = await make_model(access, f"tippingpoint-{prefix}")
    here = Scene(access, prefix, model, plan, workers)
    try:
        await here.open()
        yield here
    finally:
        await here.close()
        await remove_fleet(access, model, prefix, made_model=True)


def test_a_stage_from_nothing_begins_with_an_empty_model(access: ControllerAccess) -> None:
    """Given a model that a stage has filled, when the next one is to begin from nothing, then the model is emptied."""

    async def test() -> None:
        async with scene(access, [SMALL], workers=2, batch=2) as here:
            await here.run(1)
            await here.end()
            await here.prepare(fresh=True)
            assert await here.shape() == {"machines": 0, "applications": 0, "units": [], "relations": 0}
            here.recorded()
            await here.run(1)
            counts = here.counts()
            assert counts["add-unit.ok"] == 4
            assert counts["add-machine.ok"] == 2

    run(test())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_grows_shrinks_and_goes_as_the_stages_say(access: ControllerAccess, workers: int) -> None:
    """Given three stages, then after each the model is what it says, and every call was made once."""

    async def test() -> None:
        async with scene(access, [SMALL, LESS, NOTHING], workers, batch=2) as here:
            await here.run(1)
            assert await here.shape() == {
                "machines": 2,
                "applications": 4,
                "units": [3, 3, 3, 3],
                "relations": 4,
            }
            counts = here.counts()
            assert counts.pop("full-status.ok") >= workers
            assert counts == {"add-machine.ok": 2, "deploy.ok": 4, "add-unit.ok": 4, "relate.ok": 4}
            await here.run(2)
            assert await here.shape() == {
                "machines": 1,
                "applications": 2,
                "units": [2, 2],
                "relations": 0,
            }
            counts = here.counts()
            assert counts["remove-application.ok"] == 2
            assert counts["remove-unit.ok"] >= 2
            await here.run(3)
            assert await here.shape() == {"machines": 0, "applications": 0, "units": [], "relations": 0}
            assert here.counts()["remove-application.ok"] == 2
            await here.end()
            assert not [key for key in here.errors if key[1] != "lost"]

    run(test())


def test_a_part_that_becomes_smaller_is_dealt_anew_among_the_workers(access: ControllerAccess) -> None:
    """Given two workers with a machine each, when half of it is another unit's from the next stage on, which leaves one
    machine, then one worker has what stays, the other nothing, and no call failed on the way."""

    async def test() -> None:
        stage = {"machines": 2, "applications": 4, "units": 2, "relations": 2, "over": 0.2}
        async with scene(access, [stage, stage], workers=2) as here:
            await here.run(1)
            here.revise(part_of(here.plan, 0, 2))
            await here.run(2)
            assert await here.shape() == {"machines": 1, "applications": 2, "units": [2, 2], "relations": 1}
            assert [load.gauge.held for load in here.loads] == [4, 0]
            assert all(name.endswith(".ok") for name in here.counts())
            await here.end()

    run(test())


def test_response_times_count_from_the_moment_a_call_was_meant_for(access: ControllerAccess) -> None:
    """Given calls that are all meant for the stage's begin and a closed loop that sends one at a time, then the last
    one's response time covers those before it, and service times do not."""

    async def test() -> None:
        stage = {"machines": 12, "applications": 0, "over": 0}
        async with scene(access, [stage, NOTHING], concurrency=1) as here:
            await here.run(1)
            recorded = here.recorded()
            response, service = recorded["add-machine.ok"], recorded["add-machine.ok.service"]
            assert response.total == service.total == 12
            assert response.max > 6 * Histogram.decode(service.encode()).percentile(50)
            # and as the plan makes nothing but machines, they are what its load is counted in
            assert here.loads[0].gauge.held == 12
            await here.end()

    run(test())


def test_the_first_worker_observes_the_model(access: ControllerAccess) -> None:
    """Given two workers, then one of them asks for both kinds of status, over and over."""

    async def test() -> None:
        async with scene(access, [SMALL], workers=2, batch=3, observe_every=0.1) as here:
            await here.run(1)
            here.counts()
            seen: Counter[str] = Counter()

            def enough() -> bool:
                seen.update(here.counts())
                return seen["status.ok"] >= 3 and seen["full-status.ok"] >= 3

            await here.until(enough)
            assert set(seen) == {"status.ok", "full-status.ok"}
            await here.end()

    run(test())


def test_what_a_model_loses_is_made_again(access: ControllerAccess) -> None:
    """Given a model that is as it should be, when somebody removes an application, then the observer's next look
    finds it missing and it is made again."""

    async def test() -> None:
        async with scene(access, [SMALL], batch=3, observe_every=0.2) as here:
            await here.run(1)
            client = ApiClient(access.addresses, access.ca)
            admin = await here.admin(client)
            (name, *_) = sorted((await admin.full_status())["applications"])
            await admin.destroy_applications([name])
            await here.until(lambda: not here.loads[0].gauge.up)
            await here.up()
            assert (await here.shape())["units"] == [3, 3, 3, 3]
            await client.close()
            await here.end()

    run(test())


def test_units_answer_as_agents_do(access: ControllerAccess) -> None:
    """Given units with agents, then each logs in and shows as active and idle, one of each application leads, all
    are in their relation's scope, and they go when their applications do."""

    async def test() -> None:
        stage = {"machines": 1, "applications": 2, "units": 2, "relations": 1, "over": 0}
        async with scene(access, [stage, NOTHING], batch=2, agents=True) as here:
            await here.run(1)
            assert here.counts()["connect.ok"] == 4
            status = await here.status()
            for application in status["applications"].values():
                units = application["units"].values()
                assert {unit["workload-status"]["status"] for unit in units} == {"active"}
                assert {unit["agent-status"]["status"] for unit in units} == {"idle"}
                assert sum(bool(unit.get("leader")) for unit in units) == 1
            (relation,) = [r for r in status["relations"] if len(r["endpoints"]) == 2]
            assert relation["status"]["status"] == "joined"
            await here.run(2)
            assert (await here.shape())["applications"] == 0
            await here.end()

    run(test())


@pytest.mark.skipif(REAL is not None, reason="needs a server that can be killed")
def test_a_controller_that_goes_away_in_mid_stage_is_recorded_and_come_back_to() -> None:
    """Given a controller that is killed while a model is brought up, when it is started again, then what failed is
    counted and the model becomes what it should be all the same."""

    async def test(lab: JujuLab) -> None:
        stages = [SMALL | {"over": 15.0}, NOTHING]  # not whole before the controller is killed
        async with scene(user_of(lab), stages, batch=1) as here:
            await here.begin(1)
            await here.until(lambda: here.loads[0].gauge.held >= 2)
            await asyncio.to_thread(lab.kill, "s1")
            await here.until(lambda: any(outcome == "error" for _, outcome in here.errors))
            assert not here.loads[0].gauge.up
            await asyncio.to_thread(lab.start, "s1")
            await here.up()
            assert (await here.shape())["units"] == [3, 3, 3, 3]
            # and no deploy after it had to upload the charm again, which would have made another revision of it
            assert await here.charms() == {"local:tippingpoint-hollow-0"}
            assert sum(count for name, count in here.counts().items() if name.endswith(".error"))
            await here.end()

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs a server that can be stopped")
def test_calls_without_an_answer_are_timeouts() -> None:
    """Given a server that stops answering, then what was asked of it times out and the rest at the end of the load."""

    async def test(lab: JujuLab) -> None:
        stages = [
            {"machines": 2, "applications": 0, "over": 0},
            {"machines": 4, "applications": 0, "over": 0},
        ]
        async with scene(user_of(lab), stages, timeout=2.0) as here:
            await here.run(1)
            here.counts()
            here.errors.clear()
            await asyncio.to_thread(lab.stop, "s1")
            await here.begin(2)
            await here.until(lambda: here.errors["add-machine", "timeout"] == 2)
            assert here.counts()["add-machine.timeout"] == 2
            await here.end()
            await asyncio.to_thread(lab.resume, "s1")

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs a rate limit of its own")
def test_logins_that_a_rate_limit_refuses_are_counted_apart_and_tried_again() -> None:
    """Given a limit on agents' logins that is lifted when some were refused, then all units are logged in in the end,
    and no refusal is a failure."""

    async def test(lab: JujuLab) -> None:
        stage = {"machines": 1, "applications": 1, "units": 6, "over": 0}
        async with scene(user_of(lab), [stage], batch=6, agents=True) as here:
            await here.begin(1)
            await here.until(lambda: here.errors["connect", "limited"] > 0)
            await asyncio.to_thread(lab.ask, {"do": "rate-limit", "max": 0})
            await here.up()
            counts = here.counts()
            assert counts["connect.ok"] == 6
            assert counts["connect.limited"] >= 1
            assert "connect.error" not in counts
            await here.end()

    with JujuLab(rate_limit=(2, 1000.0)) as lab:
        run(test(lab))


def test_a_controller_that_cannot_be_reached_refuses_the_run() -> None:
    async def test(access: ControllerAccess) -> None:
        plan = GrowPlan.model_validate(
            {"name": "x", "target": {"kind": "juju"}, "workload": {"kind": "grow"}, "stages": [NOTHING]}
        )
        schedule = Schedule(asyncio.get_running_loop())
        load = JujuSpawn(plan, access, secrets.token_hex(16), "tp00000000", "0", Recorder(), schedule)
        with pytest.raises(TargetError, match="expected a controller that answers"):
            await load.open()
        await load.close()
        schedule.close()

    with JujuLab() as lab:
        access = user_of(lab)
    run(test(access))
