"""The operate workload on a simulated Juju controller, or on the real one that TIPPINGPOINT_JUJU_CONTROLLER names
(then without the tests of faults only a simulator has)."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.juju.client import WireClient
from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_access import REAL, run, user_of
from tests.functional.juju.juju_runs import contents, juju_plan, make_theirs, run_on
from tests.functional.juju.workers import Workers
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.operate import COMMANDS, OperatePlan, timed_as
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.targets.juju.api.access import ControllerAccess, from_store
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import log_in
from tippingpoint.targets.juju.commands import Commands
from tippingpoint.targets.juju.hollow import list_models
from tippingpoint.targets.juju.ledger import model_name
from tippingpoint.targets.juju.operate import JujuOperate
from tippingpoint.targets.juju.removal import remove_models
from tippingpoint.workloads.load import untold

SMALL = {"models": 2, "applications": 3, "units": 2, "relations": 2, "over": 0}
BUSY = {**SMALL, "statuses": 20, "changes": 20, "secrets": 10, "logs": 20}


@pytest.fixture(scope="module")
def access() -> Iterator[ControllerAccess]:
    """The administrator of a controller."""
    if REAL is not None:
        from tippingpoint.targets.juju.api.access import store_directory

        yield from_store(REAL, store_directory())
        return
    with JujuLab() as lab:
        yield user_of(lab)


class Scene(Workers):
    """Workers with models of their own, and how often each operation ended how, in all."""

    def __init__(self, access: ControllerAccess, prefix: str, plan: OperatePlan, workers: int) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__(plan, workers, partial(JujuOperate, plan, access, prefix))
        self.access = access
        self.prefix = prefix

    def _beats_once(self) -> None:
        beside = (".service", DELAYED, FREED)
        for name, histogram in self.recorder.drain().items():
            if not name.startswith("generator.") and not name.endswith(beside):
                self.counts[name] += histogram.total

    async def models(self) -> list[str]:
        """The names of the run's models, without what all begin with."""
        return await models_of(self.access, self.prefix)

    @property
    def held(self) -> int:
        return sum(load.gauge.held for load in self.loads)


async def models_of(access: ControllerAccess, prefix: str) -> list[str]:
    client = ApiClient(access.addresses, access.ca)
    try:
        models = await list_models(await log_in(client, access.user, None), access)
    finally:
        await client.close()
    beginning = f"{model_name(prefix)}-"
    return sorted(model.name.removeprefix(beginning) for model in models if model.name.startswith(beginning))


@asynccontextmanager
async def scene(
    access: ControllerAccess, stages: list[dict[str, Any]], workers: int = 1, **workload: Any
) -> AsyncGenerator[Scene]:
    """A run's workers; their models are gone afterwards."""
    prefix = f"tp{secrets.token_hex(4)}"
    plan = OperatePlan.model_validate(
        {
            "name": "operate",
            "target": {"kind": "juju"},
            "workload": {"kind": "operate", "update_status": 0, **workload},
            "stages": stages,
        }
    )
    here = Scene(access, prefix, plan, workers)
    try:
        for load in here.loads:
            await load.open()
        yield here
    finally:
        await here.close()
        await remove_models(access, f"{model_name(prefix)}-", untold)
        assert await models_of(access, prefix) == []


def test_models_come_in_their_shapes_grow_and_shrink(access: ControllerAccess) -> None:
    """Given two workers, when stages ask for more and fewer models and units, then so many are there and logged in."""

    async def test() -> None:
        more = {**SMALL, "models": 4, "units": 3, "relations": 3}
        fewer = {**SMALL, "applications": 2, "units": 1, "relations": 1}
        async with scene(access, [SMALL, more, fewer], workers=2) as here:
            for number, models, units in ((1, 2, 12), (2, 4, 36), (3, 2, 4)):
                await here.run(number)
                assert here.held == units
                assert len(await here.models()) == models
            await here.prepare(fresh=True)
            await here.end()
        assert not here.errors, here.messages

    run(test())


def test_nothing_is_sent_while_models_are_made_anew(access: ControllerAccess) -> None:
    """Given a stage with much work, when a search has all models made anew for its next load, then nothing fails."""

    async def test() -> None:
        async with scene(access, [{**BUSY, "statuses": 100}], update_status="1s") as here:
            await here.run(1)
            await here.until(lambda: here.counts["juju-status.ok"] >= 10)
            for load in here.loads:
                await load.settle(10.0)
            await here.prepare(fresh=True)
            await here.run(1)
            await here.end()
        assert not here.errors, here.messages

    run(test())


def test_units_notice_what_others_write(access: ControllerAccess) -> None:
    """Given units at work, when they write settings, secrets and lines, then each is noticed, and none fails."""

    async def test() -> None:
        async with scene(access, [BUSY], workers=2, update_status="1s") as here:
            await here.run(1)
            noticed = ("relation-change", "secret-change", "log", "hook", "juju-status")
            await here.until(lambda: all(here.counts[f"{name}.ok"] >= 10 for name in noticed))
            await here.end()
            assert not here.errors, here.messages

    run(test())


def test_a_secret_that_expires_is_renewed_and_read_anew(access: ControllerAccess) -> None:
    """Given secrets whose revisions expire, when they do, then owners renew them, also after a new login, and each
    reader reads the new revision."""

    async def test() -> None:
        async with scene(access, [SMALL], rotate="2s") as here:
            await here.run(1)
            await here.until(lambda: here.counts["secret-rotation.ok"] >= 8)
            await here.run(1, "storm")
            before = here.counts["secret-rotation.ok"]
            await here.until(lambda: here.counts["secret-rotation.ok"] >= before + 8)
            await here.end()
        assert not here.errors, here.messages

    run(test())


def test_operators_use_every_command(access: ControllerAccess) -> None:
    """Given operators with a mix of all commands, when they work, then every command succeeds and none fails."""

    async def test() -> None:
        stage = {**SMALL, "operators": 10}
        mix = dict.fromkeys(COMMANDS, 1.0)
        async with scene(access, [stage], think="500ms", mix=mix) as here:
            await here.run(1)
            await here.until(
                lambda: bool(here.errors) or all(here.counts[f"{timed_as(n)}.ok"] for n in COMMANDS)
            )
            assert not here.errors, here.messages
            await here.end()
            assert not here.errors, here.messages

    run(test())


def test_shapes_of_a_site_are_made_as_they_are(access: ControllerAccess) -> None:
    """Given shapes with applications of different sizes, when models are made, then they take them in turn."""

    async def test() -> None:
        shapes = [{"applications": [1, 3, 0], "relations": [[1, 0]]}, {"applications": [2]}]
        async with scene(access, [{"models": 3, "changes": 5, "over": 0}], shapes=shapes) as here:
            await here.run(1)
            assert here.held == 4 + 2 + 4
            await here.until(lambda: here.counts["relation-change.ok"] >= 5)
            await here.end()
            assert not here.errors, here.messages

    run(test())


def test_a_storm_brings_all_units_back(access: ControllerAccess) -> None:
    """Given units at work, when all connections are dropped, then all log in again and work goes on."""

    async def test() -> None:
        async with scene(access, [BUSY]) as here:
            await here.run(1)
            await here.until(lambda: here.counts["relation-change.ok"] >= 5)
            before = here.counts["connect.ok"]
            await here.run(1, "storm")
            await here.until(lambda: here.counts["connect.ok"] >= before + 12)
            changed = here.counts["relation-change.ok"]
            await here.until(lambda: here.counts["relation-change.ok"] >= changed + 5)
            await here.end()

    run(test())


@pytest.mark.skipif(REAL is not None, reason="needs a server that can be killed")
def test_work_goes_on_after_a_restart_of_the_controller() -> None:
    """Given units and operators at work, when the only server dies and comes back, then what was due meanwhile failed,
    and everything goes on after it."""

    async def test(lab: JujuLab) -> None:
        async with scene(user_of(lab), [BUSY], timeout="5s") as here:
            await here.run(1)
            await asyncio.to_thread(lab.kill, "s1")
            await here.until(lambda: bool(here.errors["juju-status", "error"]))
            await asyncio.to_thread(lab.start, "s1")
            await here.until(lambda: here.held == 12)
            before = Counter(here.counts)
            work = ("relation-change", "secret-change", "log", "juju-status")
            await here.until(
                lambda: all(here.counts[f"{name}.ok"] >= before[f"{name}.ok"] + 5 for name in work)
            )
            await here.end()

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs a server whose disk can be slow")
def test_work_goes_on_while_the_database_is_slow() -> None:
    """Given units and operators at work, when the controller's disk is slow, then all they do still succeeds."""

    async def test(lab: JujuLab) -> None:
        async with scene(user_of(lab), [{**SMALL, "statuses": 5, "changes": 2, "secrets": 1}]) as here:
            await here.run(1)
            await asyncio.to_thread(lab.ask, {"do": "slow-disk", "member": "s1"})
            for number in range(2):
                before = Counter(here.counts)
                work = ("relation-change", "secret-change", "juju-status")
                await here.until(
                    lambda before=before, work=work: all(
                        here.counts[f"{name}.ok"] >= before[f"{name}.ok"] + 5 for name in work
                    )
                )
                if not number:
                    await asyncio.to_thread(lab.ask, {"do": "free-disk", "member": "s1"})
            await here.end()
            assert not here.errors, here.messages

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="destroys a model under its users")
def test_a_model_that_somebody_destroyed_is_made_again_for_the_next_stage() -> None:
    """Given a model that is destroyed while its units work, when the next stage begins, then it is there again."""

    async def test(lab: JujuLab) -> None:
        access = user_of(lab)
        async with scene(access, [BUSY, BUSY]) as here:
            await here.run(1)
            client = ApiClient(access.addresses, access.ca)
            models = await list_models(await log_in(client, access.user, None), access)
            await client.close()
            lost = next(model for model in models if model.name.startswith(model_name(here.prefix)))
            destroy = {"do": "destroy-model", "model": lost.uuid, "disconnect": True}
            await asyncio.to_thread(lab.ask, destroy)
            await here.until(lambda: here.held < 12)
            await here.run(2)
            assert here.held == 12
            assert len(await here.models()) == 2
            await here.end()

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs three servers of which one can be killed")
def test_units_go_on_with_the_servers_that_are_left() -> None:
    """Given three servers, when one dies, then all units log in at the others and what they write is noticed."""

    async def test(lab: JujuLab) -> None:
        async with scene(user_of(lab), [BUSY], timeout="5s") as here:
            await here.run(1)
            await asyncio.to_thread(lab.kill, "s2")
            await here.until(lambda: here.held < 12 or bool(here.errors))
            await here.until(lambda: here.held == 12)
            before = here.counts["relation-change.ok"]
            await here.until(lambda: here.counts["relation-change.ok"] >= before + 10)
            await here.end()

    with JujuLab(servers=3) as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs a model that cannot be destroyed")
def test_a_model_that_cannot_be_destroyed_keeps_no_other() -> None:
    """Given a model whose removal is blocked, when a run is cleaned, then one line says why and the rest is gone."""

    async def test(lab: JujuLab) -> None:
        access = user_of(lab)
        async with scene(access, [SMALL]) as here:
            await here.run(1)
            await here.end()
            client = ApiClient(access.addresses, access.ca)
            models = await list_models(await log_in(client, access.user, None), access)
            await client.close()
            kept = next(model for model in models if model.name.startswith(model_name(here.prefix)))
            await asyncio.to_thread(lab.ask, {"do": "keep-model", "model": kept.uuid})
            with pytest.raises(OperationFailed) as refused:
                await remove_models(access, f"{model_name(here.prefix)}-", untold)
            assert "\n" not in str(refused.value)
            assert await here.models() == [kept.name.removeprefix(f"{model_name(here.prefix)}-")]
            await asyncio.to_thread(lab.ask, {"do": "keep-model", "model": kept.uuid, "keep": False})

    with JujuLab() as lab:
        run(test(lab))


@pytest.mark.skipif(REAL is not None, reason="needs a user of its own")
def test_an_offer_that_is_not_granted_is_refused_in_one_line() -> None:
    """Given an offer, when a user to whom it is not granted consumes it, one line says so, and others still may."""
    password = "of-bob-for-this-test"

    async def test(lab: JujuLab, theirs: str) -> None:
        access = user_of(lab)
        bob = dataclasses.replace(access, user=Identity("user-bob", password))
        client = ApiClient(access.addresses, access.ca)
        admin = Commands(client, access)
        await admin.offer(theirs, "postgresql", "share")
        ours = await admin.add_model("ours")
        with pytest.raises(OperationFailed) as refused:
            await Commands(client, bob).consume(ours, "admin/theirs.share", "alias")
        assert str(refused.value) == "permission denied (unauthorized access)"
        await admin.consume(ours, "admin/theirs.share", "alias")
        await client.close()

    with JujuLab() as lab:
        theirs = make_theirs(lab, "theirs")
        with WireClient(lab.addresses[0], lab.ca) as controller:
            controller.login(f"user-{lab.user}", lab.password)
            added = {"users": [{"username": "bob", "display-name": "", "password": password}]}
            controller.call("UserManager", 3, "AddUser", added)
        run(test(lab, theirs))


@pytest.mark.skipif(REAL is not None, reason="starts a simulator of its own")
def test_a_run_of_twenty_models_reports_and_leaves_nothing(tmp_path: Path) -> None:
    """Given a plan of 20 models, when it is run, then its thresholds are met, and no model is left."""
    plan = juju_plan(
        tmp_path,
        workload={"kind": "operate", "think": "1s"},
        stages=[
            {
                **{"models": 20, "applications": 5, "units": 2, "relations": 4, "over": "0s", "hold": "5s"},
                **{"operators": 3, "statuses": 2, "changes": 5, "secrets": 1, "logs": 5},
            }
        ],
        thresholds=[{"operation": "juju-status", "p99": "1m"}, {"operation": "relation-change", "p99": "1m"}],
    )
    with JujuLab() as lab:
        done = run_on(lab, "run", plan, "--controller", lab.controller, "--out", tmp_path / "runs")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "200/200 units" in done.stderr
        left = asyncio.run(models_of(user_of(lab), "tp"))
        assert left == []


@pytest.mark.skipif(REAL is not None, reason="needs a user of its own")
def test_a_user_who_may_not_add_models_is_told_so_in_one_line(tmp_path: Path) -> None:
    """Given a user without access to add models, when a run begins, then one line says so, and nothing is made."""
    with JujuLab() as lab:
        with WireClient(lab.addresses[0], lab.ca) as controller:
            controller.login(f"user-{lab.user}", lab.password)
            added = {"users": [{"username": "bob", "display-name": "", "password": "of-bob-for-this-test"}]}
            controller.call("UserManager", 3, "AddUser", added)
        login = {"addresses": lab.addresses, "ca": lab.ca, "user": "bob", "password": "of-bob-for-this-test"}
        credentials = tmp_path / "controller.yaml"
        credentials.touch(mode=0o600)
        credentials.write_text(yaml.safe_dump(login))
        plan = juju_plan(
            tmp_path,
            target={"kind": "juju", "credentials": str(credentials)},
            workload={"kind": "operate"},
            stages=[{"over": "0s", "hold": "1s"}],
            thresholds=[],
        )
        done = run_on(lab, "run", plan, "--out", tmp_path / "runs")
        assert done.returncode == 3
        said = [line for line in (done.stdout + done.stderr).splitlines() if "may not add a model" in line]
        assert said
        assert all("bob may not add a model" in line for line in said)
        assert "of-bob-for-this-test" not in done.stdout + done.stderr
        assert [*contents(lab)] == ["controller"]
