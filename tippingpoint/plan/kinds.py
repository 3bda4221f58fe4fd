"""The kinds of target there are, and what a plan and the rooms below the targets know of each: its section of a plan.

A target is a package of its name in `tippingpoint.targets`, or somebody else's that an entry point of the group
`tippingpoint.targets` names: the entry point's name is the kind, its value the package (or the one module) to import.
Nothing of a target is imported before a plan or a run names its kind.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from tippingpoint.errors import UserError
from tippingpoint.plan.fields import Section

if TYPE_CHECKING:
    from tippingpoint.plan.base import BasePlan

BUILT_IN = ("etcd", "juju", "lxd", "openstack")
"""The targets of the suite, in the order in which they are listed: a new one is one word more."""
GROUP = "tippingpoint.targets"
"""The entry points of targets that other packages bring, and the package ours are in."""
DEFAULT = "etcd"
"""The target of a plan that names none."""


class TargetSection(Section, frozen=True):
    """What a plan says of its target, and what is known of all targets of its kind.

    The class variables here are what holds for a kind that nobody knows, such as an imported run may have.
    """

    kind: str

    plans: ClassVar[Mapping[str, type[BasePlan]]] = {}
    """The workloads that this target answers to, and the class that a plan of each is of."""
    read_as: ClassVar[Mapping[str, str]] = {}
    """What workloads were called on this target before they had names of their own: plans and runs still say it."""
    own_connections: ClassVar[bool] = False
    """Whether every unit that claims has a connection of its own, so that `connect` is timed."""
    things: ClassVar[str] = "containers"
    """What people call what a spawn workload makes here."""
    member: ClassVar[str] = "member"
    """What people call one of the machines that things run on."""
    called: ClassVar[Mapping[str, str]] = {}
    """What the steps of a thing's life (spawn.LIFE) are called here, where not that; steps left out are not timed."""
    observations: ClassVar[tuple[str, ...]] = ()
    """What users ask this target for, timed as the number of things grows."""
    commands: ClassVar[Mapping[str, str]] = {}
    """What a user would type for each of them."""
    called_real: ClassVar[str] = ""
    """What people call a real one, where the kind alone is no word for that."""
    coded_errors: ClassVar[bool] = False
    """Whether its errors end with a code in brackets, "(not found)", by which they are counted."""
    steps_note: ClassVar[str] = ""
    """What a report says of the steps of a thing's life, where their names say too little."""
    evicts: ClassVar[bool] = False
    """Whether a member that is gone can be removed by force."""
    options: ClassVar[Mapping[str, str]] = {}
    """The fields that `tippingpoint run` has an option of the same name for, and what its help says of them."""
    filled_in: ClassVar[tuple[str, ...]] = ()
    """The fields that a charm fills in, and that a plan of a charm's may not say: a path of somebody else's machine
    would be another file there."""

    @property
    def in_turn(self) -> bool:
        """Whether we say which member a thing is put on."""
        return False

    def check(self, plan: BasePlan) -> None:
        """ValueError, as `field: value: expected ...`, where a plan of this target asks for what it cannot do."""

    @property
    def programs(self) -> Mapping[str, str]:
        """The programs of our own machine that a run needs, each with its package and why: `PACKAGE: WHY`."""
        return {}

    def of_unit(self, number: int) -> Self:
        """What the unit with this number has of it, counted from 0, where many units run a plan together."""
        return self

    def check_in_charm(self) -> None:
        """UserError where a plan that a charm runs may not say this of its target."""
        for name in self.filled_in:
            if value := getattr(self, name):
                raise UserError(
                    f"target.{name}",
                    str(value),
                    "nothing: the charm fills it in, from a relation or its credentials",
                )


class UnknownTarget(TargetSection, extra="allow", frozen=True):
    """The target of a run of which nobody knows any more what it is."""


RECORDED = "recorded"
"""The context in which plans of runs are validated: what they were run on need not be there."""


def is_unknown(kind: object) -> bool:
    """Whether this names a kind of target that nobody brings."""
    return isinstance(kind, str) and facts_of(kind) is TargetSection


def kinds() -> tuple[str, ...]:
    """All kinds of target: ours first, then those that other packages bring, by name."""
    return (*BUILT_IN, *brought())


def kinds_of(workload: str) -> tuple[str, ...]:
    """The kinds of target that answer to a workload."""
    return tuple(kind for kind in kinds() if workload in section_of(kind).plans)


def workload_of(kind: str, name: str) -> str:
    """The workload that a plan or run on a target of this kind means by a name, which may be an old one."""
    return facts_of(kind).read_as.get(name, name)


def package_of(kind: str) -> str:
    """The package (or module) that everything about a kind of target is in; LookupError when there is no such kind."""
    return f"{GROUP}.{kind}" if kind in BUILT_IN else brought()[kind]


def module_of(kind: str, part: str) -> ModuleType:
    """One module of a target's package, such as `plan`; the module itself where a target is one module.

    LookupError when nobody brings this kind, UserError when what brings it cannot be imported.
    """
    package = _package(kind)
    return _import(kind, f"{package.__name__}.{part}") if _has_parts(package) else package


def shipped_files(folder: str) -> list[Traversable]:
    """The files in this folder of all targets' packages, by name: what targets ship, such as their plans."""
    folders = [resources.files(package) / folder for package in map(_package, kinds()) if _has_parts(package)]
    found = [file for each in folders if each.is_dir() for file in each.iterdir()]
    return sorted(found, key=lambda file: file.name)


@functools.cache
def section_of(kind: str) -> type[TargetSection]:
    """The section of a plan about a target of this kind: SECTION of its module `plan`.

    LookupError when nobody brings this kind, UserError when what brings it cannot be imported.
    """
    return cast("type[TargetSection]", module_of(kind, "plan").SECTION)


def facts_of(kind: str) -> type[TargetSection]:
    """What is known of targets of this kind; of one that nobody knows, what holds for any."""
    try:
        return section_of(kind)
    except (LookupError, UserError):
        return TargetSection


def usual(kind: str) -> TargetSection:
    """A target of this kind of which nothing is said; LookupError and UserError as section_of's."""
    return section_of(kind).model_construct(kind=kind)


class ByKind:
    """Annotates the target in a plan of a workload: it is read by its kind, of those that answer to the workload."""

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
            return TargetSection.model_validate(value)  # which says that a mapping is wanted
        kind = cast("dict[str, Any]", value).get("kind", DEFAULT)
        if info.context == RECORDED and is_unknown(kind):
            return UnknownTarget.model_validate(value)
        try:
            section = section_of(kind)
        except (LookupError, TypeError):
            section = TargetSection
        if self._workload not in section.plans:
            raise unknown_kind("kind", kind, kinds_of(self._workload))
        return section.model_validate(value)


def default_target() -> TargetSection:
    """The target of a plan that names none."""
    return section_of(DEFAULT).model_validate({})


def said_default(schema: dict[str, Any]) -> None:
    """Put that target into the JSON schema of a field."""
    schema["default"] = default_target().model_dump(mode="json")


def unknown_kind(field: str, kind: object, known: Iterable[str], why: str = "") -> PydanticCustomError:
    """An error of validation: what stands there as a kind chooses nothing. `why` is why no others would."""
    context = {"field": field, "kind": kind if isinstance(kind, str) else repr(kind)}
    accepted = f"one of {', '.join(known)}{why}"
    return PydanticCustomError(
        "unknown_kind", "{kind}: expected {accepted}", context | {"accepted": accepted}
    )


def _package(kind: str) -> ModuleType:
    return _import(kind, package_of(kind))


def _import(kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UserError("target.kind", kind, f"a target that can be imported ({problem})") from None


def _has_parts(package: ModuleType) -> bool:
    return hasattr(package, "__path__")


def _as_it_is(section: Any, handler: Any) -> Any:
    return handler(section)


@functools.cache
def brought() -> Mapping[str, str]:
    """What other packages bring, by kind. Ours are never replaced."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {kind: found[kind] for kind in sorted(found.keys() - set(BUILT_IN))}
