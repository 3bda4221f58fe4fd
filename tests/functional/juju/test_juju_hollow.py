"""Hollow fleets: made, used and removed on a simulated controller, or on the real one that
TIPPINGPOINT_JUJU_CONTROLLER names (then without the tests of faults only a simulator has)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_access import REAL, run, user_of
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.errors import ApiError, ConnectionLost
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import HollowMachineSpec, ModelAdmin, ask, log_in
from tippingpoint.targets.juju.hollow import (
    HollowFleet,
    application_name,
    find_model,
    instance_id,
    make_model,
)
from tippingpoint.targets.juju.removal import remove_fleet


class Scene:
    """A model of a test's own, a client, and what a test does with them."""

    def __init__(self, access: ControllerAccess, client: ApiClient, prefix: str, model: str) -> None:
        self.access = access
        self.client = client
        self.prefix = prefix
        self.model = model

    def names(self, count: int) -> list[str]:
        return [application_name(self.prefix, lease) for lease in range(count)]

    def fleet(self, worker: str = "w0") -> HollowFleet:
        return HollowFleet(self.client, self.access, self.model, self.prefix, worker)

    async def admin(self) -> ModelAdmin:
        return await ModelAdmin.open(self.client, self.access, self.model)

    async def status(self) -> dict[str, Any]:
        admin = await self.admin()
        status = await admin.full_status()
        admin.close()
        return status

    async def claim(self, fleet: HollowFleet, unit: str, application: str) -> str:
        """Log in as a unit and claim an application's lease; what went wrong, or "ok"."""
        identity = fleet.identity(unit)
        connection = await self.client.login(identity, self.model)
        claim = {"application-tag": f"application-{application}", "unit-tag": identity.tag, "duration": 60.0}
        answer = await connection.call("LeadershipService", "ClaimLeadership", {"params": [claim]})
        connection.close()
        error = answer["results"][0].get("error")
        return error["message"] if error else "ok"


@asynccontextmanager
async def scene(access: ControllerAccess, named: str = "tippingpoint-{}") -> AsyncGenerator[Scene]:
    """A model in which everything is the test's; all of it is gone afterwards."""
    prefix = f"tp{secrets.token_hex(4)}"
    model = await make_model(access, named.format(prefix))
    client = ApiClient(access.addresses, access.ca)
    try:
        yield Scene(access, client, prefix, model)
    finally:
        await client.close()
        await remove_fleet(access, model, "other", made_model=False)
        await remove_fleet(access, model, prefix, made_model=True)


def quiet(what: str, done: int, of: int) -> None:
    """For a fleet nobody watches."""


def shape(status: dict[str, Any]) -> dict[str, int]:
    """How many machines a status has, and how many units each application."""
    units = {name: len(application["units"] or {}) for name, application in status["applications"].items()}
    return {"machines": len(status["machines"])} | units


def test_every_unit_of_a_fleet_logs_in_and_fights_for_its_own_lease(access: ControllerAccess) -> None:
    """Given a fleet on a stock controller, then one unit of an application gets its lease, and no other's."""

    async def test() -> None:
        async with scene(access) as here:
            fleet = here.fleet()
            await fleet.open()
            first, second = here.names(2)
            await fleet.grow([first, second], 3, quiet)
            assert await here.claim(fleet, f"{first}/0", first) == "ok"
            assert await here.claim(fleet, f"{first}/1", first) == "leadership claim denied"
            assert await here.claim(fleet, f"{first}/2", first) == "leadership claim denied"
            assert await here.claim(fleet, f"{second}/2", second) == "ok"
            assert await here.claim(fleet, f"{second}/0", first) == "permission denied"
            await fleet.close()

    run(test())


def test_a_fleet_grows_by_what_is_missing(access: ControllerAccess) -> None:
    """Given a fleet, when it is to have more applications, then more units, then only those are made, and the
    units that were there keep their passwords."""

    async def test() -> None:
        async with scene(access) as here:
            fleet = here.fleet()
            names = here.names(4)
            for applications, units in ((names[:2], 2), (names[:2], 2), (names, 2), (names, 3)):
                await fleet.grow(applications, units, quiet)
                made = dict.fromkeys(applications, units)
                assert shape(await here.status()) == {"machines": 1} | made
                assert await here.claim(fleet, f"{names[0]}/0", names[0]) == "ok"
            assert await here.claim(fleet, f"{names[3]}/2", names[3]) == "ok"
            await fleet.close()

    run(test())


def test_a_fleet_that_is_opened_again_finds_what_it_made(access: ControllerAccess) -> None:
    """Given a fleet whose process is gone, with its secret, when the same worker opens it again, then nothing is
    made twice and the units log in with new passwords; the old ones are void."""

    async def test() -> None:
        async with scene(access) as here:
            names = here.names(3)
            before = here.fleet()
            await before.grow(names, 2, quiet)
            after = here.fleet()
            await after.open()
            await after.grow(names, 2, quiet)
            assert shape(await here.status()) == {"machines": 1} | dict.fromkeys(names, 2)
            assert await here.claim(after, f"{names[2]}/1", names[2]) == "ok"
            with pytest.raises(ApiError, match="invalid entity name or password"):
                await here.claim(before, f"{names[2]}/1", names[2])

    run(test())


def test_a_fleet_half_made_is_completed(access: ControllerAccess) -> None:
    """Given a machine of ours and one application with one unit, when the fleet grows, then it uses both."""

    async def test() -> None:
        async with scene(access) as here:
            first, second = here.names(2)
            admin = await here.admin()
            spec = HollowMachineSpec(instance_id(here.prefix, "w0", 0), "192.0.2.1")
            (machine,) = await admin.add_machines([spec])
            await admin.deploy([first], 1, machine)
            fleet = here.fleet()
            await fleet.grow([first, second], 2, quiet)
            assert shape(await here.status()) == {"machines": 1, first: 2, second: 2}
            assert await here.claim(fleet, f"{first}/1", first) == "ok"

    run(test())


def test_workers_have_machines_of_their_own(access: ControllerAccess) -> None:
    """Given two workers that grow their fleets at once, then each has its own machine and all units log in."""

    async def test() -> None:
        async with scene(access) as here:
            names = here.names(6)
            fleets = [here.fleet("w0"), here.fleet("w1")]
            shares = [names[:3], names[3:]]
            async with asyncio.TaskGroup() as both:
                for fleet, share in zip(fleets, shares, strict=True):
                    both.create_task(fleet.grow(share, 2, quiet))
            status = await here.status()
            assert shape(status) == {"machines": 2} | dict.fromkeys(names, 2)
            instances = {machine["instance-id"] for machine in status["machines"].values()}
            assert instances == {instance_id(here.prefix, worker, 0) for worker in ("w0", "w1")}
            assert await here.claim(fleets[1], f"{names[5]}/1", names[5]) == "ok"

    run(test())


def test_a_thousand_units_are_on_a_machine_and_progress_is_told(access: ControllerAccess) -> None:
    """Given 1005 units, then two machines have them, and what is told ends with all that was asked for."""

    async def test() -> None:
        async with scene(access) as here:
            told: dict[str, list[tuple[int, int]]] = {}
            names = here.names(335)
            fleet = here.fleet()
            await fleet.grow(names, 3, lambda what, *steps: told.setdefault(what, []).append(steps))
            status = await here.status()
            assert shape(status) == {"machines": 2} | dict.fromkeys(names, 3)
            assert await here.claim(fleet, f"{names[334]}/2", names[334]) == "ok"
            for what, total in (("applications", 335), ("passwords", 1005)):
                done = [step for step, _ in told[what]]
                assert done == sorted(done)
                assert (done[0], done[-1]) == (0, total)
                assert {of for _, of in told[what]} == {total}

    run(test())


def test_what_juju_refuses_is_named_and_the_rest_stays(access: ControllerAccess) -> None:
    """Given a name Juju does not accept among others, when it is deployed, then the error names it and hides the
    passwords; and the fleet goes on with what was made."""

    async def test() -> None:
        async with scene(access) as here:
            fleet = here.fleet()
            good, wrong = here.names(1)[0], f"{here.prefix}-7"
            with pytest.raises(ApiError) as error:
                await fleet.grow([good, wrong], 2, quiet)
            text = str(error.value)
            assert wrong in text
            assert "\n" not in text
            assert access.user.password not in text
            await fleet.grow([good], 2, quiet)
            assert shape(await here.status()) == {"machines": 1, good: 2}
            assert await here.claim(fleet, f"{good}/1", good) == "ok"

    run(test())


def test_removing_takes_the_model_we_made_and_counts(access: ControllerAccess) -> None:
    """Given a model of ours with a fleet, when it is removed by name, then all of it is counted and gone, and a
    second removal finds nothing."""

    async def test() -> None:
        async with scene(access) as here:
            await here.fleet().grow(here.names(3), 2, quiet)
            name = f"tippingpoint-{here.prefix}"
            assert await find_model(access, name) == here.model
            assert await find_model(access, f"{access.user_name}/{name}") == here.model
            assert await find_model(access, here.model) == here.model
            assert await remove_fleet(access, name, here.prefix, made_model=True) == 3 * 2 + 3 + 1 + 1
            with pytest.raises(UserError, match=r"target\.model: .*: expected one of .*"):
                await find_model(access, name)
            assert await remove_fleet(access, name, here.prefix, made_model=True) == 0
            assert await remove_fleet(access, here.model, here.prefix, made_model=True) == 0

    run(test())


def test_two_removals_at_once_get_along(access: ControllerAccess) -> None:
    """Given a fleet that is being removed, when it is removed a second time, then both end with it gone."""

    async def test() -> None:
        async with scene(access) as here:
            await here.fleet().grow(here.names(20), 3, quiet)
            async with asyncio.TaskGroup() as both:
                removals = [
                    both.create_task(remove_fleet(access, here.model, here.prefix, made_model=True))
                    for _ in range(2)
                ]
            assert max(removal.result() for removal in removals) == 20 * 3 + 20 + 1 + 1
            assert await remove_fleet(access, here.model, here.prefix, made_model=True) == 0

    run(test())


@pytest.mark.parametrize("made_model", [False, True])
def test_removing_leaves_alone_what_is_not_ours(access: ControllerAccess, made_model: bool) -> None:
    """Given a fleet beside, and related to, an application of someone else, on whose machine one unit of ours is,
    when it is removed, then all of ours goes and all of theirs stays, whoever made the model."""

    async def test() -> None:
        async with scene(access) as here:
            admin = await here.admin()
            (machine,) = await admin.add_machines([HollowMachineSpec("manual:other-w0-0", "192.0.2.1")])
            await admin.deploy(["other-app"], 2, machine)
            first, second, third = here.names(3)
            await here.fleet().grow([first, second], 2, quiet)
            await admin.deploy([third], 1, machine)
            await admin.relate(f"{first}:{charm.PROVIDES}", f"other-app:{charm.REQUIRES}")
            if made_model:
                with pytest.raises(TargetError, match="kept because it contains machine 0, other-app"):
                    await remove_fleet(access, here.model, here.prefix, made_model)
            else:
                removed = await remove_fleet(access, here.model, here.prefix, made_model)
                assert removed == 5 + 3 + 1
            status = await here.status()
            assert shape(status) == {"machines": 1, "other-app": 2}
            assert [one["instance-id"] for one in status["machines"].values()] == ["manual:other-w0-0"]

    run(test())


def test_a_machine_of_ours_with_somebody_elses_unit_on_it_is_kept(access: ControllerAccess) -> None:
    """Given a fleet on whose machine somebody put a unit, when it is removed, then only that machine stays, and the
    error names it."""

    async def test() -> None:
        async with scene(access) as here:
            await here.fleet().grow(here.names(2), 2, quiet)
            admin = await here.admin()
            (machine,) = (await admin.full_status())["machines"]
            await admin.deploy(["other-app"], 1, machine)
            with pytest.raises(TargetError, match=f"machine {machine}: kept because others' units are on it"):
                await remove_fleet(access, here.model, here.prefix, made_model=False)
            assert shape(await here.status()) == {"machines": 1, "other-app": 1}

    run(test())


def test_a_model_that_was_asked_to_go_and_never_would_is_removed(access: ControllerAccess) -> None:
    """Given a model of ours that somebody destroys without force, which waits for agents that hollow units do not
    have, when it is removed, then it goes by force."""

    async def test() -> None:
        async with scene(access) as here:
            await here.fleet().grow(here.names(2), 2, quiet)
            client = ApiClient(access.addresses, access.ca)
            connection = await log_in(client, access.user, None)
            models = [{"model-tag": f"model-{here.model}", "destroy-storage": True}]
            await ask(connection, "ModelManager", "DestroyModels", {"models": models})
            await client.close()
            name = f"tippingpoint-{here.prefix}"
            assert await remove_fleet(access, name, here.prefix, made_model=True) == 2 * 2 + 2 + 1 + 1
            with pytest.raises(UserError):
                await find_model(access, name)

    run(test())


def test_a_model_without_the_prefix_in_its_name_is_never_destroyed(access: ControllerAccess) -> None:
    """Given a ledger that says we made a model whose name is not ours, when it is removed, then it is kept."""

    async def test() -> None:
        async with scene(access) as here:
            await here.fleet().grow(here.names(1), 1, quiet)
            other = f"tp{secrets.token_hex(4)}"
            with pytest.raises(TargetError, match=f"kept because it is not named {other}"):
                await remove_fleet(access, here.model, other, made_model=True)
            assert shape(await here.status()) == {"machines": 1, here.names(1)[0]: 1}

    run(test())


def test_a_model_that_is_there_is_not_made_again(access: ControllerAccess) -> None:
    async def test() -> None:
        async with scene(access) as here:
            with pytest.raises(ApiError, match="already exists"):
                await make_model(access, f"tippingpoint-{here.prefix}")

    run(test())


def test_an_administrator_adds_relates_and_destroys(access: ControllerAccess) -> None:
    """Given two applications, when units are added, related and destroyed, then the status shows each step."""

    async def test() -> None:
        async with scene(access) as here:
            admin = await here.admin()
            specs = [HollowMachineSpec(instance_id(here.prefix, "w0", n), f"192.0.2.{n + 1}") for n in (0, 1)]
            machines = await admin.add_machines(specs)
            first, second = here.names(2)
            await admin.deploy([first, second], 1, machines[0])
            added = await admin.add_units(first, 3, machines)
            assert added == [f"{first}/{number}" for number in (1, 2, 3)]
            await admin.relate(f"{first}:{charm.PROVIDES}", f"{second}:{charm.REQUIRES}")
            status = await admin.full_status()
            placed = {unit: one["machine"] for unit, one in status["applications"][first]["units"].items()}
            assert [placed[unit] for unit in added] == [machines[0], machines[1], machines[0]]
            pairs = [sorted(end["application"] for end in one["endpoints"]) for one in status["relations"]]
            assert [first, second] in pairs
            await admin.destroy_units([added[2], f"{first}/99"])
            await until(admin, lambda shown: len(shown["applications"][first]["units"]) == 3)
            await admin.destroy_applications([second, f"{second}-gone"])
            await until(admin, lambda shown: second not in shown["applications"])
            await admin.destroy_machines([machines[1], "99"])
            await until(admin, lambda shown: machines[1] not in shown["machines"])

    run(test())


async def until(admin: ModelAdmin, seen: Callable[[dict[str, Any]], bool]) -> None:
    """Ask for the status until it shows what was asked for; the test's own time limit ends it."""
    while not seen(await admin.full_status()):
        pass


def test_an_upload_with_a_wrong_password_is_refused_without_showing_it(access: ControllerAccess) -> None:
    async def test() -> None:
        async with scene(access) as here:
            wrong = Identity(access.user.tag, "not-the-password-of-anyone")
            with pytest.raises(ApiError) as error:
                await charm.upload(access.addresses[0], access.ca, wrong, here.model)
            assert "charm tippingpoint-hollow" in str(error.value)
            assert wrong.password not in str(error.value)

    run(test())


@pytest.mark.skipif(REAL is not None, reason="a fault only the simulator has")
class TestFaults:
    """What happens to a fleet in the making when the controller fails."""

    def test_logins_that_are_rate_limited_are_tried_again(self) -> None:
        """Given a controller that lets one agent log in each 0.3 s, when three workers grow, then all succeed."""

        async def test(access: ControllerAccess) -> None:
            async with scene(access) as here:
                names = here.names(3)
                async with asyncio.TaskGroup() as workers:
                    for number, name in enumerate(names):
                        workers.create_task(here.fleet(f"w{number}").grow([name], 1, quiet))
                assert shape(await here.status()) == {"machines": 3} | dict.fromkeys(names, 1)

        with JujuLab(rate_limit=(1, 0.3)) as lab:
            run(test(user_of(lab)))

    def test_a_controller_that_goes_and_comes_back(self) -> None:
        """Given a fleet, when its only server is killed, then growing fails in one line that names the server;
        and once it is back the same call goes on where it was."""

        async def test(lab: JujuLab, access: ControllerAccess) -> None:
            async with scene(access) as here:
                fleet = here.fleet()
                names = here.names(2)
                await fleet.grow(names[:1], 2, quiet)
                lab.kill("s1")
                with pytest.raises(OperationFailed) as error:
                    await fleet.grow(names, 2, quiet)
                assert isinstance(error.value, ConnectionLost)
                assert str(error.value).startswith(access.addresses[0])
                lab.start("s1")
                await fleet.grow(names, 2, quiet)
                assert shape(await here.status()) == {"machines": 1} | dict.fromkeys(names, 2)

        with JujuLab() as lab:
            run(test(lab, user_of(lab)))

    def test_a_facade_of_a_version_nobody_knows(self) -> None:
        async def test(lab: JujuLab, access: ControllerAccess) -> None:
            async with scene(access) as here:
                lab.ask({"do": "facades", "versions": {"MachineManager": [99]}})
                fleet = here.fleet()
                with pytest.raises(ApiError, match=r"facade MachineManager: .* offers version 99: expected"):
                    await fleet.grow(here.names(1), 1, quiet)
                lab.ask({"do": "facades", "versions": {}})

        with JujuLab() as lab:
            run(test(lab, user_of(lab)))

    def test_a_certificate_of_another_authority(self, juju: JujuLab) -> None:
        """Given the CA of another controller, then neither a login nor an upload gets past TLS."""

        async def test(access: ControllerAccess, ca: str) -> None:
            with pytest.raises(ConnectionLost, match="certificate"):
                await charm.upload(access.addresses[0], ca, access.user, "0" * 8)
            stranger = ControllerAccess(access.controller_name, access.addresses, ca, access.user)
            with pytest.raises(ConnectionLost, match="certificate"):
                await make_model(stranger, "never")

        with JujuLab() as other:
            run(test(user_of(juju), other.ca))
