"""Finds short names that distinguish compared runs, and the differences between their plans."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.compare.baselines import Baseline
from tippingpoint.plan.kinds import target_name
from tippingpoint.rundir.results import RunData

_SAYS_NOTHING = ("name", "description", "title", "lab")
"""Fields with the names of plans, and with the address of a lab's control."""
_WHERE = (
    *("endpoints", "controller", "remote", "url", "socket", "agent", "identity"),
    *("ca", "cert", "key", "certificate", "credentials"),
)
"""Settings for a target's address and login, which do not affect the load."""
_MOST_SETTING = 40
"""The maximum number of characters of a setting that may become a name."""
_MOST_DIFFERENCES = 12


@dataclass(frozen=True)
class Named:
    """The possible names of a run or a published result; `plan` is empty without a plan."""

    id: str
    kind: str
    version: str
    title: str
    started: float | None
    plan: Mapping[str, Any]

    @classmethod
    def of_run(cls, run: RunData) -> Named:
        """Take the names from a run's manifest."""
        manifest = run.manifest
        target = manifest.target
        plan = manifest.plan or {}
        return cls(manifest.id, target.kind, target.version, manifest.title, manifest.started, plan)

    @classmethod
    def of_baseline(cls, baseline: Baseline) -> Named:
        """Take the names from a published result. The run of its transcript has the same id."""
        target = baseline.target
        return cls(PREFIX + baseline.name, target.kind, target.version, baseline.title, None, {})


def short_names(named: Sequence[Named]) -> list[str]:
    """Return names that distinguish all: versions, titles, the only setting that differs, dates, ids, or letters."""
    several = len({one.kind for one in named}) > 1
    candidates = [
        [target_name(one.kind, one.version) if several and one.version else one.version for one in named],
        _titles([one.title for one in named]),
        _settings([one.plan for one in named]),
        *([_day(one.started, form) for one in named] for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M")),
        [one.id for one in named],
    ]
    for names in candidates:
        if all(names) and len(set(names)) == len(named):
            return names
    return [letter(number) for number in range(len(named))]


def letter(number: int) -> str:
    """Return the shortest name for a run by its number from 0: A, B, ... Z, AA, AB."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def differences(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that differ between plans, with all values; empty if a run has no plan."""
    if not plans or not all(plans):
        return []
    leaves = [_leaves(plan) for plan in plans]
    lines: list[str] = []
    for path in dict.fromkeys(path for found in leaves for path in found):
        values = [found.get(path, "not set") for found in leaves]
        if len(set(values)) > 1:
            lines.append(f"{path}: {' / '.join(values)}")
    if len(lines) > _MOST_DIFFERENCES:
        lines[_MOST_DIFFERENCES:] = [f"and {len(lines) - _MOST_DIFFERENCES} more settings"]
    return lines


def _titles(titles: Sequence[str]) -> list[str]:
    """Remove the words before a comma if all titles begin with them."""
    parts = [title.split(", ") for title in titles]
    shared = 0
    while all(len(words) > shared + 1 for words in parts) and len({words[shared] for words in parts}) == 1:
        shared += 1
    return [", ".join(words[shared:]) for words in parts]


def _settings(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every plan's value of the only setting that differs, with its name; empty if not exactly one differs."""
    leaves = [_leaves(plan) for plan in plans]
    differing = [
        path
        for path in dict.fromkeys(path for found in leaves for path in found)
        if len({found.get(path) for found in leaves}) > 1
    ]
    if len(differing) != 1:
        return [""] * len(plans)
    (path,) = differing
    values = [found.get(path, "") for found in leaves]
    short = all(value and len(value) <= _MOST_SETTING for value in values)
    return [f"{path.rpartition('.')[2]} {value}" if short else "" for value in values]


def _leaves(plan: Mapping[str, Any], path: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in plan.items():
        if (not path and key in _SAYS_NOTHING) or (path == "target" and key in _WHERE):
            continue
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            found |= _leaves(cast("Mapping[str, Any]", value), here)
        else:
            found[here] = _shown(value)
    return found


def _shown(value: object) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return ", ".join(_shown(item) for item in items)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value)
        return " ".join(f"{key} {_shown(item)}" for key, item in pairs.items() if item not in (None, "ramp"))
    return "not set" if value is None else str(value)


def _day(started: float | None, form: str) -> str:
    return "" if started is None else time.strftime(form, time.gmtime(started))
