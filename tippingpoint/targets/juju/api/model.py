"""An administrator's API calls in one Juju model, one typed method per call.

Names, fields and versions are those of Juju's rpc/params and apiserver/facades/client of 2.9, 3.6 and 4.0.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import ApiError, RateLimited, result_error
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.util.retrying import retry

ANSWER_WITHIN = 300.0
"""Seconds to wait for one answer; a Deploy of 100 applications into a large model takes some tens of seconds."""
LOGGED_IN_WITHIN = 120.0
"""Seconds to wait for one login, including retries after the controller's rate limit."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0
"""Seconds before a login is retried after a refusal by the rate limit."""
ARCHITECTURE = "amd64"
"""Architecture that the hollow machines claim: the only one whose agent binaries every controller can find."""
GONE = ("not found", "model not found")
"""Error codes for a thing, or its whole model, that does not exist."""

_PASSWORD = re.compile(r"\boldpassword:\s*[\"'\\]*([A-Za-z0-9+/=_-]{20,})")


@dataclass(frozen=True)
class HollowMachineSpec:
    """A machine that exists only in the controller: `instance` is its id there (manual:...), `address` its IP."""

    instance: str
    address: str

    @property
    def nonce(self) -> str:
        """The nonce that the machine's agent sends with its password; the same after a restart, and not a secret."""
        return f"{self.instance}:hollow"


async def log_in(
    client: ApiClient, identity: Identity, model: str | None, closed: Callable[[str], None] | None = None
) -> Connection:
    """Log in, retrying after the controller's rate limit; OperationFailed after LOGGED_IN_WITHIN seconds."""
    try:
        return await retry(
            lambda: client.login(identity, model, closed),
            LOGGED_IN_WITHIN,
            lambda problem: isinstance(problem, RateLimited),
            _FIRST_PAUSE,
            _LONGEST_PAUSE,
        )
    except TimeoutError:
        raise OperationFailed(f"{identity.tag}: not logged in within {LOGGED_IN_WITHIN:.0f} s") from None


async def ask(
    connection: Connection,
    facade: str,
    request: str,
    params: object,
    within: float = ANSWER_WITHIN,
    entity: str = "",
) -> dict[str, Any]:
    """Make one call and return its answer, an object; OperationFailed if none comes within `within` seconds.

    `entity` is the id of a watcher, for a call of one.
    """
    try:
        async with asyncio.timeout(within):
            return fields(await connection.call(facade, request, params, entity))
    except TimeoutError:
        name = f"{facade}.{request}"
        raise OperationFailed(f"{connection.server}: no answer to {name} within {within:g} s") from None


def fields(value: object) -> dict[str, Any]:
    """Return a JSON object of an answer; empty if it is anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a JSON list of an answer; empty if it is anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


class ModelAdmin:
    """A user's connection to one model. Every method makes one API call.

    Refusals raise ApiError (or OperationFailed with the name of the refused thing), a lost connection ConnectionLost.
    """

    def __init__(
        self,
        connection: Connection,
        access: ControllerAccess,
        model: str,
        lost: asyncio.Event,
        answer_within: float,
        charm_url: str | None,
    ) -> None:
        self.model = model
        self._connection = connection
        self._access = access
        self._lost = lost
        self._answer_within = answer_within
        self._charm_url = charm_url
        self._uploading = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        client: ApiClient,
        access: ControllerAccess,
        model: str,
        answer_within: float = ANSWER_WITHIN,
        told: Callable[[str], None] | None = None,
        charm_url: str | None = None,
    ) -> ModelAdmin:
        """Log in to the model with this UUID. Calls wait `answer_within` seconds for an answer.

        `told(reason)` is called when the connection is lost. `charm_url` is the result of `hollow_charm` on an
        earlier connection.
        """
        lost = asyncio.Event()  # may be set before `log_in` returns

        def closed(reason: str) -> None:
            lost.set()
            if told is not None:
                told(reason)

        connection = await log_in(client, access.user, model, closed)
        return cls(connection, access, model, lost, answer_within, charm_url)

    @property
    def lost(self) -> bool:
        """Whether the connection is lost, so that another must be opened."""
        return self._lost.is_set()

    @property
    def server_version(self) -> str:
        """The controller's version, as "4.0.15"."""
        return self._connection.server_version

    async def add_machines(self, machines: Sequence[HollowMachineSpec]) -> list[str]:
        """Add machines that are never started; returns their ids in the same order."""
        request = {
            "params": [
                {
                    "base": self._base(),
                    "constraints": {},
                    "jobs": ["JobHostUnits"],
                    "parent-id": "",
                    "container-type": "",
                    "instance-id": machine.instance,
                    "nonce": machine.nonce,
                    "hardware-characteristics": {
                        "arch": ARCHITECTURE,
                        "mem": 4096,
                        "cpu-cores": 2,
                        "root-disk": 16384,
                    },
                    "addresses": [{"value": machine.address, "type": "ipv4", "scope": "local-cloud"}],
                }
                for machine in machines
            ]
        }
        answer = await self.ask("MachineManager", "AddMachines", request)
        results = items(answer.get("machines"))
        _refuse([machine.instance for machine in machines], results, "MachineManager", "AddMachines")
        return [str(fields(result).get("machine")) for result in results]

    async def machine_identity(self, machine: str, nonce: str) -> Identity:
        """Return the identity of a machine's agent. The controller generates a new password for the machine."""
        request = {"machine-id": machine, "nonce": nonce, "data-dir": "", "disable-package-commands": True}
        answer = await self.ask("MachineManager", "ProvisioningScript", request)
        found = _PASSWORD.search(str(answer.get("script")))
        if found is None:
            raise OperationFailed(f"machine {machine}: the provisioning script contains no password")
        return Identity(f"machine-{machine}", found.group(1), nonce)

    async def hollow_charm(self) -> str:
        """Return the URL of the hollow charm in the model; the first call uploads it."""
        async with self._uploading:
            if self._charm_url is None:
                self._charm_url = await charm.upload(
                    self._connection.server, self._access.ca, self._access.user, self.model
                )
            return self._charm_url

    async def deploy(self, applications: Sequence[str], units: int, machine: str) -> None:
        """Deploy the hollow charm once per name, each with this many units, all on one machine.

        The charm is uploaded first, unless it already was. Juju answers for each application separately: all are tried,
        and the first failure is raised. An application that already exists is not an error.
        """
        url = await self.hollow_charm()
        revision = int(url.rpartition("-")[2])
        base = self._base()
        series = {"series": "jammy"} if self._before_bases else {}
        architecture = {"architecture": ARCHITECTURE} if self._before_bases else {}
        placement = [{"scope": "#", "directive": machine}] * units
        request = {
            "applications": [
                {
                    "application": application,
                    "charm-url": url,
                    "charm-origin": {
                        "source": "local",
                        "type": "",
                        "id": "",
                        "revision": revision,
                        "base": base,
                        **architecture,
                        **series,
                    },
                    "channel": "",
                    "num-units": units,
                    "config-yaml": "",
                    "constraints": {},
                    "placement": placement,
                    "Force": False,
                    **series,
                }
                for application in applications
            ]
        }
        answer = await self.ask("Application", "Deploy", request)
        _refuse(applications, answer.get("results"), "Application", "Deploy", passing=_is_there)

    async def add_units(self, application: str, count: int, machines: Sequence[str]) -> list[str]:
        """Add units, spread over these machines in turn; returns the units' names ("app/3")."""
        request = {
            "application": application,
            "num-units": count,
            "placement": [
                {"scope": "#", "directive": machines[place % len(machines)]} for place in range(count)
            ],
        }
        answer = await self.ask("Application", "AddUnits", request)
        return [str(unit) for unit in items(answer.get("units"))]

    async def relate(self, one: str, other: str) -> None:
        """Relate two endpoints, each "application:endpoint" (`link` of the one, `link-from` of the other)."""
        await self.ask("Application", "AddRelation", {"endpoints": [one, other]})

    async def destroy_relation(self, one: str, other: str) -> None:
        """Remove the relation of two endpoints by force; endpoints are named as in `relate`."""
        relation = {"endpoints": [one, other], "relation-id": 0, "force": True}
        await self.ask("Application", "DestroyRelation", relation)

    async def full_status(self, patterns: Sequence[str] = ()) -> dict[str, Any]:
        """Return the status of `juju status`: "machines" and "applications" by id and name, "relations", "model"."""
        return await self.ask("Client", "FullStatus", {"patterns": list(patterns)})

    async def destroy_units(self, units: Sequence[str]) -> None:
        """Remove units by force, without waiting for agents; a missing unit is not an error."""
        request = {
            "units": [
                {"unit-tag": unit_tag(unit), "destroy-storage": True, "force": True, "max-wait": 0}
                for unit in units
            ]
        }
        await self._destroy("Application", "DestroyUnit", request, units)

    async def destroy_applications(self, applications: Sequence[str]) -> None:
        """Remove applications and their units by force; a missing application is not an error."""
        request = {
            "applications": [
                {
                    "application-tag": f"application-{application}",
                    "destroy-storage": True,
                    "force": True,
                    "max-wait": 0,
                }
                for application in applications
            ]
        }
        await self._destroy("Application", "DestroyApplication", request, applications)

    async def destroy_machines(self, machines: Sequence[str]) -> None:
        """Remove machines (ids) and everything on them by force; a missing machine is not an error."""
        request = {
            "machine-tags": [f"machine-{machine}" for machine in machines],
            "force": True,
            "max-wait": 0,
        }
        await self._destroy("MachineManager", "DestroyMachineWithParams", request, machines)

    def close(self) -> None:
        """Log out."""
        self._lost.set()
        self._connection.close()

    @property
    def _before_bases(self) -> bool:
        return self.server_version.split(".")[0] in ("2", "3")

    def _base(self) -> dict[str, str]:
        # 3.1 and most of 2.9 do not know 24.04; versions after 4.0 may not know 22.04.
        return {"name": "ubuntu", "channel": "22.04" if self._before_bases else "24.04"}

    async def _destroy(self, facade: str, request: str, params: object, names: Sequence[str]) -> None:
        answer = await self.ask(facade, request, params)
        _refuse(names, answer.get("results"), facade, request, passing=_is_gone)

    async def ask(self, facade: str, request: str, params: object) -> dict[str, Any]:
        """Make another call in the model, and return its answer."""
        return await ask(self._connection, facade, request, params, self._answer_within)


def unit_tag(unit: str) -> str:
    """Return a unit's tag: "unit-app-3" for "app/3"."""
    return "unit-" + unit.replace("/", "-")


def _is_there(error: ApiError) -> bool:
    return "application already exists" in error.message  # 4.0 gives it no code


def _is_gone(error: ApiError) -> bool:
    return error.code in GONE or error.message.endswith("not found")  # 4.0 gives a machine's no code


def _refuse(
    names: Sequence[str],
    results: object,
    facade: str,
    request: str,
    passing: Callable[[ApiError], bool] | None = None,
) -> None:
    """Raise the first error in a bulk answer, with the name it belongs to, unless `passing` accepts it."""
    answers = items(results)
    if len(answers) != len(names):
        raise ApiError(f"{len(answers)} results for {len(names)} requested things", "", facade, request)
    for name, answer in zip(names, answers, strict=True):
        error = result_error(answer, facade, request)
        if error is None or (passing is not None and passing(error)):
            continue
        message = error.message if name in error.message else f"{name}: {error.message}"
        raise ApiError(message, error.code, facade, request)
