"""Hollow units: creating a model for them, and a fleet of them.

A hollow unit exists in the controller and logs in, but no agent is behind it. An administrator adds a machine that
is never started and deploys applications to it. As that machine's agent, the fleet then sets the password of every
unit on it. The controller needs no patch, because each unit claims only its own application's lease.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, result_errors
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import (
    HollowMachineSpec,
    ModelAdmin,
    ask,
    fields,
    items,
    log_in,
    unit_tag,
)

UNITS_PER_MACHINE = 1000
APPLICATIONS_PER_CALL = 100
PASSWORDS_PER_CALL = 300

_QUALIFIED = 11
"""The version of ModelManager from which on a model's owner is a qualifier."""
_ADDRESSES = ipaddress.ip_network("192.0.2.0/24")  # TEST-NET-1 of RFC 5737: assigned to nobody

Progress = Callable[[str, int, int], None]
"""Called with what is being created ("machines", "applications", "passwords"), how many are done, and the total."""


def application_name(prefix: str, lease: int) -> str:
    """Return the name of the lease's application. (Each part of an application's name must contain a letter.)"""
    return f"{prefix}-l{lease}"


def instance_id(prefix: str, worker: str, number: int) -> str:
    """Return the instance id of a worker's machine; `remove_fleet` recognises the run's machines by it."""
    return f"manual:{prefix}-{worker}-{number}"


async def make_model(access: ControllerAccess, name: str) -> str:
    """Create a model on the controller's cloud and return its UUID.

    Cloud and credential are chosen as `juju add-model NAME` does (cmd/juju/controller/addmodel.go). The cloud is the
    only one that the user may use, else the controller's own. The credential is the user's only one for this cloud,
    else the controller's choice. Kubernetes clouds are skipped, as they have no machines.
    TargetError if the user may not add models or no cloud has machines; OperationFailed for any other refusal.
    """
    async with _controller(access) as connection:
        try:
            return await create_model(connection, access, name)
        except ApiError as refused:
            # Juju 4.0 gives "access not found" no code.
            if refused.code == UNAUTHORIZED or "access not found" in refused.message:
                raise TargetError(
                    "target.model",
                    f"{access.user_name} may not add a model on {access.controller_name}",
                    "the name of an existing model, or a user with add-model access (juju grant-cloud)",
                ) from None
            raise


async def create_model(connection: Connection, access: ControllerAccess, name: str) -> str:
    """Create a model as `juju add-model NAME` does, over a connection to the controller, and return its UUID."""
    # The owner's field is qualifier (a user's name) from 4.0 on.
    qualified = connection.facades.get("ModelManager", 0) >= _QUALIFIED
    owner = {"qualifier": access.user_name} if qualified else {"owner-tag": access.user.tag}
    request = {"name": name, **owner, **await _choose_cloud(connection, access)}
    uuid = (await ask(connection, "ModelManager", "CreateModel", request)).get("uuid")
    if not isinstance(uuid, str):
        raise ApiError(f"model {name}: made without a UUID", "", "ModelManager", "CreateModel")
    return uuid


async def find_model(access: ControllerAccess, name: str) -> str:
    """Return the UUID of the model with this name ("loads", "admin/loads") or UUID; UserError if there is none."""
    async with _controller(access) as connection:
        models = await list_models(connection, access)
    found = matching_model(models, name, access)
    if found is None:
        shown = ", ".join(sorted({model.name for model in models})[:10])
        accepted = f"one of {shown}" if shown else f"a model that {access.user_name} may use (there are none)"
        raise UserError("target.model", name, accepted)
    return found.uuid


@dataclass(frozen=True)
class Model:
    """A model as the controller lists it; `owner` is a user's name."""

    uuid: str
    name: str
    owner: str


async def list_models(connection: Connection, access: ControllerAccess) -> list[Model]:
    """Return the models that the user may use, over a connection to the controller."""
    answer = await ask(connection, "ModelManager", "ListModels", {"tag": access.user.tag})
    models = [fields(fields(entry).get("model")) for entry in items(answer.get("user-models"))]
    return [
        Model(
            uuid=str(model.get("uuid")),
            name=str(model.get("name")),
            owner=str(model.get("qualifier") or model.get("owner-tag") or "").removeprefix("user-"),
        )
        for model in models
    ]


def matching_model(models: Sequence[Model], name: str, access: ControllerAccess) -> Model | None:
    """Return the model with this UUID, owner/name or name. Of models with one name, the user's own comes first."""
    owner, slash, short = name.rpartition("/")
    named = [model for model in models if model.name == short and (not slash or model.owner == owner)]
    own = [model for model in named if model.owner == access.user_name]
    exact = [model for model in models if model.uuid == name]
    return next(iter(exact + own + (named if slash or len(named) == 1 else [])), None)


def batches(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """Split names into batches of at most `size`, in order."""
    return [names[start : start + size] for start in range(0, len(names), size)]


class HollowFleet:
    """One worker's machines, applications and units in a model. They grow and stay until `remove_fleet`.

    Every unit's password is derived from a secret that is created with the fleet and kept only in memory. A fleet
    opened again for the same worker finds its earlier things. It sets new passwords for the requested units.
    """

    def __init__(
        self, client: ApiClient, access: ControllerAccess, model: str, prefix: str, worker: str
    ) -> None:
        self._client = client
        self._access = access
        self._model = model
        self._prefix = prefix
        self._worker = worker
        self._secret = secrets.token_bytes(32)
        self._admin: ModelAdmin | None = None
        self._machines: list[_Machine] = []
        self._machine_of: dict[str, _Machine] = {}
        self._ready: set[str] = set()

    async def open(self) -> None:
        """Log in as the administrator and read the fleet's existing things."""
        await self._administrator()

    async def grow(self, applications: Sequence[str], units: int, progress: Progress) -> None:
        """Create these applications with this many units each; afterwards all these units can log in.

        Existing things are kept, so a failed call can be repeated. OperationFailed if the controller fails or refuses:
        ApiError with the application's name, or ConnectionLost.
        """
        admin = await self._administrator()
        # A unit's name is kept for as long as its unit: it is made once.
        wanted = {name: [f"{name}/{number}" for number in range(units)] for name in applications}
        try:
            await self._deploy(admin, wanted, units, progress)
            await self._set_passwords(admin, [unit for named in wanted.values() for unit in named], progress)
        except BaseException:
            # Part of it may have been created: read the status again next time.
            self._forget()
            raise

    def identity(self, unit: str) -> Identity:
        """Return the identity with which a unit ("tp1a2b3c4d-l17/0") logs in."""
        digest = hmac.digest(self._secret, unit.encode(), hashlib.sha256)
        return Identity(unit_tag(unit), base64.urlsafe_b64encode(digest).decode().rstrip("="))

    async def close(self) -> None:
        """Log out; the fleet stays in the model."""
        self._forget()

    def _forget(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin = None

    async def _administrator(self) -> ModelAdmin:
        if self._admin is None or self._admin.lost:
            admin = await ModelAdmin.open(self._client, self._access, self._model)
            try:
                self._see(await admin.full_status())
            except BaseException:
                admin.close()
                raise
            self._admin = admin
        return self._admin

    def _see(self, status: Mapping[str, Any]) -> None:
        identities = {machine.spec.instance: machine.identity for machine in self._machines}
        self._machines, self._machine_of = [], {}
        by_instance = {
            str(fields(machine).get("instance-id")): number
            for number, machine in fields(status.get("machines")).items()
        }
        for number in itertools.count():
            spec = self._spec(number)
            if spec.instance not in by_instance:
                break
            self._machines.append(_Machine(spec, by_instance[spec.instance], identities.get(spec.instance)))
        ours = {machine.number: machine for machine in self._machines}
        for application in fields(status.get("applications")).values():
            for unit, details in fields(fields(application).get("units")).items():
                machine = ours.get(str(fields(details).get("machine")))
                if machine is not None:
                    machine.units += 1
                    self._machine_of[unit] = machine

    def _spec(self, number: int) -> HollowMachineSpec:
        address = _ADDRESSES[1 + number % (_ADDRESSES.num_addresses - 2)]
        return HollowMachineSpec(instance_id(self._prefix, self._worker, number), str(address))

    async def _deploy(
        self, admin: ModelAdmin, wanted: Mapping[str, Sequence[str]], units: int, progress: Progress
    ) -> None:
        have = {name: sum(unit in self._machine_of for unit in named) for name, named in wanted.items()}
        missing = [name for name in wanted if have[name] < units]
        done = len(wanted) - len(missing)
        progress("applications", done, len(wanted))
        while missing:
            machine = await self._machine_with_room(admin, units, len(missing), progress)
            fitting = max(1, (UNITS_PER_MACHINE - machine.units) // units)
            batch = missing[: min(fitting, APPLICATIONS_PER_CALL)]
            missing = missing[len(batch) :]
            await admin.deploy([name for name in batch if not have[name]], units, machine.number)
            for name in batch:
                if have[name]:
                    await admin.add_units(name, units - have[name], [machine.number])
                for unit in wanted[name]:
                    if unit not in self._machine_of:
                        self._machine_of[unit] = machine
                        machine.units += 1
            done += len(batch)
            progress("applications", done, len(wanted))

    async def _machine_with_room(
        self, admin: ModelAdmin, units: int, applications: int, progress: Progress
    ) -> _Machine:
        for machine in self._machines:
            if machine.units == 0 or machine.units + units <= UNITS_PER_MACHINE:
                return machine
        each = max(1, UNITS_PER_MACHINE // units)
        wanted = -(-applications // each)
        progress("machines", 0, wanted)
        specs = [self._spec(len(self._machines) + number) for number in range(wanted)]
        numbers = await admin.add_machines(specs)
        made = [_Machine(spec, number) for spec, number in zip(specs, numbers, strict=True)]
        self._machines += made
        progress("machines", wanted, wanted)
        return made[0]

    async def _set_passwords(self, admin: ModelAdmin, units: Sequence[str], progress: Progress) -> None:
        waiting = [unit for unit in units if unit not in self._ready]
        done = len(units) - len(waiting)
        progress("passwords", done, len(units))
        by_machine: dict[str, list[str]] = {}
        for unit in waiting:
            by_machine.setdefault(self._machine_of[unit].spec.instance, []).append(unit)
        for machine in self._machines:
            there = by_machine.get(machine.spec.instance)
            if not there:
                continue
            if machine.identity is None:
                machine.identity = await admin.machine_identity(machine.number, machine.spec.nonce)
            connection = await log_in(self._client, machine.identity, self._model)
            try:
                for batch in batches(there, PASSWORDS_PER_CALL):
                    await self._change(connection, batch)
                    self._ready.update(batch)
                    done += len(batch)
                    progress("passwords", done, len(units))
            finally:
                connection.close()

    async def _change(self, connection: Connection, units: Sequence[str]) -> None:
        identities = [self.identity(unit) for unit in units]
        changes = [{"tag": identity.tag, "password": identity.password} for identity in identities]
        answer = await ask(connection, "Deployer", "SetPasswords", {"changes": changes})
        errors = result_errors(answer, "Deployer", "SetPasswords")
        if len(errors) != len(units):
            raise OperationFailed(f"{units[0]}: {len(errors)} results for {len(units)} passwords")
        for unit, error in zip(units, errors, strict=True):
            if error is not None:
                raise ApiError(f"{unit}: {error.message}", error.code, error.facade, error.request)


@dataclass
class _Machine:
    spec: HollowMachineSpec
    number: str
    identity: Identity | None = field(default=None)
    units: int = 0


@contextlib.asynccontextmanager
async def _controller(access: ControllerAccess) -> AsyncGenerator[Connection]:
    client = ApiClient(access.addresses, access.ca)
    try:
        yield await log_in(client, access.user, None)
    finally:
        await client.close()


async def _choose_cloud(connection: Connection, access: ControllerAccess) -> dict[str, str]:
    """Return the fields of CreateModel that choose the cloud; none leaves the choice to the controller."""
    clouds = fields((await ask(connection, "Cloud", "Clouds", {})).get("clouds"))
    with_machines = {
        tag: fields(cloud) for tag, cloud in clouds.items() if fields(cloud).get("type") != "kubernetes"
    }
    if clouds and not with_machines:
        raise TargetError(
            "target.model",
            f"{access.controller_name} has only Kubernetes clouds ({', '.join(sorted(clouds))})",
            "a controller with a cloud that has machines",
        )
    if len(with_machines) > 1:
        own = [tag for tag, cloud in with_machines.items() if cloud.get("is-controller-cloud")]
        if len(own) != 1:
            return {}
        with_machines = {own[0]: with_machines[own[0]]}
    if not with_machines:
        return {}
    ((cloud_tag, cloud),) = with_machines.items()
    chosen = {"cloud-tag": cloud_tag}
    if "empty" in items(cloud.get("auth-types")):
        return chosen
    request = {"user-clouds": [{"user-tag": access.user.tag, "cloud-tag": cloud_tag}]}
    results = items((await ask(connection, "Cloud", "UserCredentials", request)).get("results"))
    credentials = items(fields(results[0]).get("result")) if results else []
    if len(credentials) == 1:
        chosen["credential"] = str(credentials[0])
    return chosen
