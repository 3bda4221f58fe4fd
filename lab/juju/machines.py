"""Machines that exist only in the controller: MachineManager for users, Deployer for the machines themselves."""

from __future__ import annotations

import secrets
import shlex
from typing import Any

import yaml

from lab.juju.controller import VERSION
from lab.juju.methods import facade, method
from lab.juju.model import Machine
from lab.juju.refusals import Refused, not_found, permission_denied
from lab.juju.rpc import Call, for_each

SHORTEST_PASSWORD = 18
"""The least number of characters of an agent's password (MinAgentPasswordLength of internal/password)."""

facade("MachineManager", "user")
facade("Deployer", "machine")


@method("MachineManager", "AddMachines", "write")
def _add_machines(call: Call) -> dict[str, Any]:
    def add(params: dict[str, Any]) -> dict[str, Any]:
        return {"machine": _add_machine(call, params).id}

    return {"machines": for_each(call.params["params"], add, {"machine": ""})}


def _add_machine(call: Call, params: dict[str, Any]) -> Machine:
    base = params.get("base")
    if not base:
        base = {"name": "ubuntu", "channel": "24.04"}
    if base["name"] != "ubuntu":
        raise Refused(f'unknown os type "{base["name"]}", expected ubuntu')
    instance = str(params.get("instance-id") or "")
    if instance and not params.get("nonce"):
        raise Refused("cannot add a new machine: cannot add a machine with an instance id and no nonce")
    addresses: list[dict[str, Any]] = params.get("addresses") or []
    return call.model.add_machine(
        instance or f"simulated-{secrets.token_hex(4)}",
        str(params.get("nonce") or ""),
        {"name": base["name"], "channel": base["channel"]},
        params.get("hardware-characteristics") or {},
        [address["value"] for address in addresses],
    )


@method("MachineManager", "ProvisioningScript", "write")
def _provisioning_script(call: Call) -> dict[str, Any]:
    machine = call.model.machines.get(str(call.params["machine-id"]))
    if machine is None:
        raise not_found(f'getting instance config: machine "{call.params["machine-id"]}"')
    nonce = str(call.params.get("nonce") or "")
    if machine.nonce and nonce and nonce != machine.nonce:
        machine.nonce = nonce
    machine.password = secrets.token_urlsafe(18)
    return {"script": _script(call, machine)}


def _script(call: Call, machine: Machine) -> str:
    """Return the part of a provisioning script that matters to a client: the agent.conf that it writes."""
    controller = call.session.controller
    directory = f"/var/lib/juju/agents/machine-{machine.id}"
    conf = yaml.safe_dump(
        {
            "tag": f"machine-{machine.id}",
            "datadir": "/var/lib/juju",
            "logdir": "/var/log/juju",
            "nonce": machine.nonce,
            "jobs": ["JobHostUnits"],
            "upgradedToVersion": VERSION,
            "cacert": controller.setup.ca,
            "controller": f"controller-{controller.uuid}",
            "model": f"model-{call.model.uuid}",
            "apiaddresses": [f"{address}:{controller.setup.port}" for address in controller.setup.addresses],
            "apipassword": "",
            "oldpassword": machine.password,
            "values": {"PROVIDER_TYPE": "manual"},
        },
        sort_keys=False,
    )
    return (
        "#!/bin/bash\nset -xe\n"
        "echo 'this machine exists in a simulated controller only' >&2; exit 1\n"
        f"mkdir -p '{directory}'\n"
        f"install -D -m 600 /dev/null '{directory}/agent.conf'\n"
        f"echo {shlex.quote('# format 2.0' + chr(10) + conf)} > '{directory}/agent.conf'\n"
    )


@method("MachineManager", "DestroyMachineWithParams", "write")
def _destroy_machines(call: Call) -> dict[str, Any]:
    def destroy(tag: object) -> dict[str, Any]:
        name = str(tag).removeprefix("machine-")
        machine = call.model.machines.get(name)
        if machine is None:
            raise Refused(
                f'getting machine UUID: getting UUID for machine "{name}": machine "{name}": machine not found'
            )
        info: dict[str, Any] = {"machine-id": machine.id}
        if machine.units:
            info["destroyed-units"] = [{"tag": unit_tag(name)} for name in machine.units]
        if not call.params.get("dry-run"):
            call.model.remove_machine(machine)
        return {"info": info}

    return {"results": for_each(call.params["machine-tags"], destroy)}


@method("Deployer", "SetPasswords")
def _set_passwords(call: Call) -> dict[str, Any]:
    def change(params: dict[str, Any]) -> dict[str, Any]:
        _set_password(call, str(params["tag"]), str(params["password"]))
        return {}

    return {"results": for_each(call.params["changes"], change)}


def _set_password(call: Call, tag: str, password: str) -> None:
    name = unit_name(tag)
    machine = call.model.machines.get(call.entity.id)
    unit = call.model.unit(name) if name and machine and name in machine.units else None
    if unit is None:
        raise permission_denied()
    try:
        if len(password) < SHORTEST_PASSWORD:
            long = f"password is only {len(password)} bytes long"
            raise Refused(f"{long}, and is not a valid Agent password: invalid password")
        call.model.set_password(unit, password)
    except Refused as refusal:
        raise Refused(f'setting password for "{tag}": {refusal.message}') from None


def unit_tag(name: str) -> str:
    """Return a unit's tag: "unit-app-0" for "app/0"."""
    return "unit-" + name.replace("/", "-")


def unit_name(tag: str) -> str | None:
    """Return the unit of a tag; None if it is not a unit's."""
    kind, _, rest = tag.partition("-")
    application, _, number = rest.rpartition("-")
    return f"{application}/{number}" if kind == "unit" and application and number.isdigit() else None
