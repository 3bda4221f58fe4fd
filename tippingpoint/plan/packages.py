"""The packages of targets, by kind: which exist, and which files they ship.

A target is a package of its name in `tippingpoint.targets`, or a package that an entry point of the group
`tippingpoint.targets` names. The entry point's name is the kind, and its value the package (or module) to import.
Before a plan or a run names a target's kind, only the package itself is imported. It is light, because lists of all
kinds import it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.metadata import entry_points
from importlib.resources.abc import Traversable
from types import ModuleType

from tippingpoint.errors import UserError, describe

BUILT_IN = ("etcd", "juju", "lxd", "maas", "openstack", "pacemaker")
"""The targets of the suite, in the order of lists. A new target adds one word."""
GROUP = "tippingpoint.targets"
"""The group of entry points of other packages' targets, and the package of ours."""


def kinds() -> tuple[str, ...]:
    """All kinds of target: ours first, then those of other packages, by name."""
    return (*BUILT_IN, *brought())


@functools.cache
def brought() -> Mapping[str, str]:
    """The packages of other targets, by kind. They never replace ours."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return {kind: found[kind] for kind in sorted(found.keys() - set(BUILT_IN))}


def package_of(kind: str) -> str:
    """The package (or module) of a kind of target; LookupError when there is no such kind."""
    return f"{GROUP}.{kind}" if kind in BUILT_IN else brought()[kind]


def module_of(kind: str, part: str) -> ModuleType:
    """One module of a target's package, such as `plan`; the module itself where a target is one module.

    LookupError when this kind is not installed, UserError when its package cannot be imported.
    """
    package = _package(kind)
    return _import(kind, f"{package.__name__}.{part}") if _has_parts(package) else package


def kinds_where(holds: Callable[[str], bool]) -> tuple[str, ...]:
    """The kinds of target for which a condition holds.

    A kind is left out if the condition raises UserError, for instance because a package that is not ours cannot be
    imported. One line on standard error reports that, once per process.
    """
    found: list[str] = []
    for kind in kinds():
        try:
            if holds(kind):
                found.append(kind)
        except UserError as broken:
            _leave_out(str(broken))
    return tuple(found)


def options() -> dict[str, tuple[str, str]]:
    """The options of `tippingpoint run` that set a target's field of the same name: kind of target, and help.

    A target's package lists its own as OPTIONS. It may have none.
    """
    return {
        option: (kind, text)
        for kind in kinds_where(lambda kind: hasattr(_package(kind), "OPTIONS"))
        for option, text in _package(kind).OPTIONS.items()
    }


def shipped_files(folder: str) -> list[Traversable]:
    """The files in this folder of all targets' packages, by name, such as their plans."""
    packages = map(_package, kinds_where(lambda kind: _has_parts(_package(kind))))
    folders = [resources.files(package) / folder for package in packages]
    found = [file for each in folders if each.is_dir() for file in each.iterdir()]
    return sorted(found, key=lambda file: file.name)


@functools.cache
def _leave_out(problem: str) -> None:
    print(f"tippingpoint: left out: {problem}", file=sys.stderr)


def _package(kind: str) -> ModuleType:
    return _import(kind, package_of(kind))


def _import(kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UserError("target.kind", kind, f"a target that can be imported ({problem})") from None
    except Exception as problem:
        if kind in BUILT_IN:
            raise  # a fault of ours, which needs its traceback
        raise UserError("target.kind", kind, f"a target that can be imported ({describe(problem)})") from None


def _has_parts(package: ModuleType) -> bool:
    return hasattr(package, "__path__")
