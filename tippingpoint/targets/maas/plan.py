"""A MAAS in a plan: where the file with its address and key is, and which machines are made in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ByteSize, Field, WithJsonSchema

from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.fields import Section, in_units
from tippingpoint.plan.kinds import MachineNeeds, TargetSection
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.maas.made import Composed, Made, Registered, Virtme

MACHINE_LIFE = {
    "create": "enlist",
    "start": "commission",
    "probe": "deploy",
    "off": "power-off",
    "on": "power-on",
    "launch": "launch",
    "release": "release",
    "delete": "remove",
    "total": "total",
}
"""The names of a machine's steps on MAAS. Each lasts until a list shows its end. `enlist`: the machine is there,
`commission`: it is Ready, `deploy`: it is Deployed, `power-off` and `power-on`: its power is, `release`: it is Ready
again, `remove`: it is there no more. `launch` is all that the plan asks for, with retries."""
MACHINE_COMMANDS = {
    "machine-list": "maas PROFILE machines read",
    "machine": "maas PROFILE machine read",
    "event-list": "maas PROFILE events query",
    "tag-list": "maas PROFILE tags read",
    "fabric-list": "maas PROFILE fabrics read",
    "tag-machines": "maas PROFILE tag update-nodes NAME add=...",
    "untag-machines": "maas PROFILE tag delete NAME",
}
"""The command that a user would type for each of these."""
MACHINE_OBSERVATIONS = tuple(MACHINE_COMMANDS)
"""The requests of users and operators, timed as the number of machines grows. `tag-machines` makes a tag of the run's,
and puts it on all machines of the first group; `untag-machines` removes that tag."""

Size = Annotated[
    ByteSize,
    Field(ge=1 << 20),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["4GiB", "512MiB"]},
                {"type": "integer", "minimum": 1 << 20},
            ]
        }
        | in_units("bytes")
    ),
]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
"""The name of a size of machines."""


class Machines(Section, frozen=True):
    """Machines of one size."""

    count: Annotated[int, Field(ge=1, le=100_000, json_schema_extra=in_units("machines"))] = Field(
        default=1, description="How many machines of this size each group has."
    )
    cpu: Annotated[int, Field(ge=1, le=1024, json_schema_extra=in_units("cores"))] = Field(
        default=1, description="The cores of each machine."
    )
    memory: Size = Field(default=ByteSize(1 << 30), description="The memory of each machine, such as `4GiB`.")
    networks: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] = Field(
        default=["maas"],
        min_length=1,
        description="The networks that each machine is on, one interface and one MAC address for each. For `virtme` "
        "they are libvirt's networks or the server's bridges, and a machine boots from the first.",
    )
    disks: Annotated[list[Size], Field(max_length=32)] = Field(
        default=[ByteSize(10 << 30)],
        description="The sizes of each machine's disks, such as `[10GiB, 60GiB]`.",
    )


class MaasTarget(TargetSection, frozen=True):
    """A MAAS, reached by its API with the key of an administrator. TLS is verified."""

    kind: Literal["maas"] = Field(description="The target: `maas`.")
    plans: ClassVar = {"spawn": SpawnPlan}
    filled_in: ClassVar = ("credentials",)
    things = "machines"
    member: ClassVar = "rack controller"
    on_members: ClassVar = False
    called_real = "MAAS region"
    called = MACHINE_LIFE
    observations = MACHINE_OBSERVATIONS
    commands: ClassVar = MACHINE_COMMANDS
    steps_note = (
        "Each step lasts until a list shows its end: enlist that the machine is there, commission that it is Ready, "
        "deploy that it is Deployed, release that it is Ready again, remove that it is gone; launch is all that the "
        "plan asks for."
    )

    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `url` and `api_key` of an administrator. Where the region has a "
        "private authority also `ca`, as a PEM text. `power` has the power parameters that are secrets.",
    )
    made: Made = Field(
        default=Registered(kind="registered"),
        discriminator="kind",
        description="How the machines come to be: `{kind: registered, power_type: webhook, power_parameters: "
        "{power_on_uri: 'http://HOST/{name}/on'}}` puts them into MAAS's database only. `{kind: composed, hosts: "
        "[NAME]}` has MAAS make them on its VM hosts. `{kind: virtme, power_address: 'qemu+ssh://root@HOST/system'}` "
        "has the run make them with the libvirt of its own server.",
    )
    machines: Annotated[dict[Name, Machines], Field(max_length=32)] = Field(
        default={},
        description="The machines of each group, by the name of their size: `{small: {count: 7, cpu: 2, memory: 4GiB, "
        "networks: [maas], disks: [10GiB, 60GiB]}}`. A stage with fewer `instances` has the first ones. When left out, "
        "there are as many as a stage says, of one core, 1 GiB, one network and one disk.",
    )

    def machine(self, number: int) -> Machines:
        """The size of the machine with this number in a group, counted from 0; IndexError if the plan has fewer."""
        if not self.machines:
            return Machines()
        left = number
        for machines in self.machines.values():
            if left < machines.count:
                return machines
            left -= machines.count
        raise IndexError(number)

    @property
    def needs(self) -> MachineNeeds:
        return self.made.needs if isinstance(self.made, Virtme) else MachineNeeds()

    def on_unit(self, address: str) -> Mapping[str, Any]:
        if not isinstance(self.made, Virtme):
            return {}
        return {"made": self.made.on_unit(address).model_dump(mode="json")}

    def check(self, plan: BasePlan) -> None:
        if not isinstance(plan, SpawnPlan):
            return
        if plan.workload.until == "reachable":
            raise ValueError(
                "workload.until: reachable: expected created (enlisted), started (commissioned), probed (deployed) or "
                "switched (off and on), for maas"
            )
        if plan.workload.until == "switched" and getattr(self.made, "power_type", "") == "manual":
            raise ValueError(
                "workload.until: switched: expected created, started or probed, as nobody switches machines with "
                "target.made.power_type: manual"
            )
        for name, machines in self.machines.items() if isinstance(self.made, Composed) else ():
            if machines.networks != Machines().networks:
                raise ValueError(
                    f"target.machines.{name}.networks: {machines.networks}: expected [maas], as a VM host of MAAS "
                    "chooses the network of what is composed on it"
                )
        if plan.workload.evict:
            raise ValueError("workload.evict: true: expected false, for maas")
        most = sum(machines.count for machines in self.machines.values())
        for number, stage in enumerate(plan.planned if self.machines else ()):
            if stage.instances > most:
                place = f"stages.{number}.instances" if plan.find is None else "find.limit"
                raise ValueError(
                    f"{place}: {stage.instances}: expected at most {most}, as target.machines has that many"
                )


SECTION = MaasTarget
