"""What a plan and the packages below the targets know of each kind of target: its section of a plan."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from tippingpoint.errors import UserError
from tippingpoint.plan.fields import Section
from tippingpoint.plan.packages import kinds_where, module_of

if TYPE_CHECKING:
    from tippingpoint.plan.base import BasePlan

DEFAULT = "etcd"
"""The target of a plan that names none."""


@dataclass(frozen=True)
class MachineNeeds:
    """What a plan needs on the run's machine that the run itself may not set up. A charm does."""

    packages: tuple[str, ...] = ()
    """Packages of the distribution."""
    groups: tuple[str, ...] = ()
    """The groups that the run's user has to be in."""
    virtualises: bool = False
    """Whether the machine has to run virtual machines."""
    libvirt_key: str = ""
    """A public SSH key that must give access to the machine's libvirt during the run; empty for none."""


class TargetSection(Section, frozen=True):
    """A plan's section about its target, with facts about all targets of its kind.

    The values of the class variables here hold for an unknown kind, such as that of an imported run.
    """

    kind: str

    plans: ClassVar[Mapping[str, type[BasePlan]]] = {}
    """The workloads that this target supports, and the class of a plan of each."""
    own_connections: ClassVar[bool] = False
    """Whether every unit that claims has its own connection, so that `connect` is timed."""
    read_back: ClassVar[bool] = False
    """Whether renewals of leases are read back from all members, so that `visible` is timed."""
    releases: ClassVar[bool] = True
    """Whether a call releases a lease, so that leases can be claimed and released at a rate."""
    steady_leader: ClassVar[str] = ""
    """The word for the member that leads, if the leader only changes when something broke. A change without a fault, or
    a controller that ends without one, is then a cliff. Empty if leaders may change."""
    things: ClassVar[str] = "containers"
    """The word for the things that a spawn workload makes here."""
    member: ClassVar[str] = "member"
    """The word for one of the machines that things run on."""
    on_members: ClassVar[bool] = True
    """Whether things are on members, and may be lost with one."""
    called: ClassVar[Mapping[str, str]] = {}
    """This target's names for the steps of a thing's life (spawn.LIFE), if they differ. Other steps are then not timed.

    Without `reachable` among them, a thing has its address once it has started. With `release`, things in use are
    released before they are removed. With `off` and `on`, they can be switched.
    """
    observations: ClassVar[tuple[str, ...]] = ()
    """The requests of ordinary users, timed as the number of things grows."""
    commands: ClassVar[Mapping[str, str]] = {}
    """The command that a user would type for each of them."""
    products: ClassVar[tuple[str, ...]] = ()
    """Other products that are loaded as this kind. The version of such a target begins with the product's name."""
    called_real: ClassVar[str] = ""
    """The name of a real target of this kind, if the kind alone is not a good name."""
    coded_errors: ClassVar[bool] = False
    """Whether its errors end with a code in brackets, "(not found)", by which they are counted."""
    rate_limit: ClassVar[str] = ""
    """The setting of the target that decides when it refuses calls as *limited*, and how to lift it."""
    steps_note: ClassVar[str] = ""
    """A report's note on the steps of a thing's life, if their names are not clear enough."""
    evicts: ClassVar[bool] = False
    """Whether a member that is gone can be removed by force."""
    filled_in: ClassVar[tuple[str, ...]] = ()
    """The fields that a charm fills in and a plan for a charm may not have. A path in them would name another file on
    the unit's machine."""

    @property
    def in_turn(self) -> bool:
        """Whether the run, and not the target, chooses the member of each thing."""
        return False

    def check(self, plan: BasePlan) -> None:
        """Check a whole plan; ValueError, as `field: value: expected ...`, if this target cannot do what it asks
        for."""

    @property
    def programs(self) -> Mapping[str, str]:
        """The programs that a run needs on our machine, each with its package and a reason: `PACKAGE: WHY`."""
        return {}

    @property
    def needs(self) -> MachineNeeds:
        """What a run needs on our machine besides programs."""
        return MachineNeeds()

    @property
    def profiled(self) -> Sequence[str]:
        """Where Go's pprof answers, if the plan asks for profiles of the target: http(s)://host:port of each member."""
        return ()

    def of_unit(self, number: int) -> Self:
        """The section for the unit with this number, counted from 0, when many units run a plan together."""
        return self

    def on_unit(self, address: str) -> Mapping[str, Any]:
        """The fields that a charm's unit at this address fills in, besides those for reaching the target."""
        return {}

    def check_in_charm(self) -> None:
        """Raise UserError if a plan for a charm may not have this section."""
        for name in self.filled_in:
            if value := getattr(self, name):
                raise UserError(
                    f"target.{name}",
                    str(value),
                    "nothing: the charm fills it in, from a relation or its credentials",
                )


class UnknownTarget(TargetSection, extra="allow", frozen=True):
    """The section of a run's target whose kind is not installed any more."""


RECORDED = "recorded"
"""The context in which plans of runs are validated: their kind of target need not be installed."""


def is_unknown(kind: object) -> bool:
    """Whether this is the name of a kind of target that is not installed."""
    return isinstance(kind, str) and facts_of(kind) is TargetSection


def kinds_of(workload: str) -> tuple[str, ...]:
    """The kinds of target that support a workload."""
    return kinds_where(lambda kind: workload in section_of(kind).plans)


@functools.cache
def section_of(kind: str) -> type[TargetSection]:
    """The section of a plan about a target of this kind: SECTION of its module `plan`.

    LookupError when this kind is not installed, UserError when its package cannot be imported.
    """
    if not kind.isprintable():  # a lone surrogate is not, and cannot be looked up
        raise LookupError
    section = getattr(module_of(kind, "plan"), "SECTION", None)
    if section is None:
        raise UserError("target.kind", kind, "a target whose module `plan` has a SECTION")
    return cast("type[TargetSection]", section)


def facts_of(kind: object) -> type[TargetSection]:
    """The section of this kind with its facts; for an unknown kind, the facts that hold for any."""
    try:
        return section_of(kind) if isinstance(kind, str) else TargetSection
    except (LookupError, UserError):
        return TargetSection


def target_name(kind: str, version: str) -> str:
    """The target's name and version, such as `etcd 3.5.16`; or its product's, such as `incus 6.0.4` of kind lxd."""
    if version.partition(" ")[0] in facts_of(kind).products:
        return version
    return f"{kind} {version}".strip()


def usual(kind: str) -> TargetSection:
    """A section of this kind with nothing but defaults. Raises what section_of raises."""
    return section_of(kind).model_construct(kind=kind)


class ByKind:
    """Annotates the target in a plan of a workload. It is read by its kind, which has to support the workload."""

    def __init__(self, workload: str) -> None:
        self._workload = workload

    def __get_pydantic_core_schema__(self, *_: object) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._read, serialization=core_schema.wrap_serializer_function_ser_schema(_as_it_is)
        )

    def __get_pydantic_json_schema__(
        self, _: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        sections = {kind: section_of(kind) for kind in kinds_of(self._workload)}
        choices = {kind: section.__pydantic_core_schema__ for kind, section in sections.items()}
        return handler(core_schema.tagged_union_schema(choices, repr))

    def _read(self, value: object, info: core_schema.ValidationInfo) -> TargetSection:
        if isinstance(value, TargetSection):
            return value
        if not isinstance(value, dict):
            return TargetSection.model_validate(value)  # raises the error that a mapping is expected
        kind = cast("dict[str, Any]", value).get("kind", DEFAULT)
        if info.context == RECORDED and is_unknown(kind):
            return UnknownTarget.model_validate(value)
        try:
            section = section_of(kind) if isinstance(kind, str) else TargetSection
        except LookupError:
            section = TargetSection
        if self._workload not in section.plans:
            raise unknown_kind("kind", kind, kinds_of(self._workload), f", for {self._workload}")
        return section.model_validate(value)


def default_target() -> TargetSection:
    """The target of a plan that names none."""
    return section_of(DEFAULT).model_validate({})


def said_default(schema: dict[str, Any]) -> None:
    """Put the default target into the JSON schema of a field."""
    schema["default"] = default_target().model_dump(mode="json")


def unknown_kind(field: str, kind: object, known: Iterable[str], why: str = "") -> PydanticCustomError:
    """An error of validation: this value of a kind is unknown. `why` says why only the known ones fit."""
    context = {"field": field, "kind": kind if isinstance(kind, str) else repr(kind)}
    accepted = f"one of {', '.join(known)}{why}"
    return PydanticCustomError(
        "unknown_kind", "{kind}: expected {accepted}", context | {"accepted": accepted}
    )


def _as_it_is(section: Any, handler: Any) -> Any:
    return handler(section)
