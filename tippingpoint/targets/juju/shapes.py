"""The shape of a site's own model, from what `juju status --format json` prints. No name is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.plan.operate import MAX_UNITS_A_MODEL, ModelShape


def shape_of(status: object, source: str) -> ModelShape:
    """Return how many units each application has, and which applications are related.

    Subordinates count as applications, with all of their units on their principals. Relations of an application with
    itself, or with applications of other models, are left out. UserError, with `source`, for anything that is not a
    status, or is larger than a model can be here.
    """
    applications = _object(status, "applications")
    if not applications:
        raise UserError(
            source, "no applications", "what `juju status --format json` prints of a model with some"
        )
    names = [*applications]
    places = {name: place for place, name in enumerate(names)}
    units = {name: len(_object(about, "units")) for name, about in applications.items()}
    for about in applications.values():
        for unit in _object(about, "units").values():
            for subordinate in _object(unit, "subordinates"):
                name = subordinate.partition("/")[0]
                if name in units:
                    units[name] += 1
    pairs: set[tuple[int, int]] = set()
    for name, about in applications.items():
        for related in _object(about, "relations").values():
            for other in _related(related):
                if other in places and other != name:
                    pairs.add((min(places[name], places[other]), max(places[name], places[other])))
    if sum(units.values()) > MAX_UNITS_A_MODEL:
        raise UserError(
            source,
            f"{sum(units.values())} units",
            f"at most {MAX_UNITS_A_MODEL} units, as a model has one machine",
        )
    return ModelShape(
        applications=[units[name] for name in names], relations=[[*pair] for pair in sorted(pairs)]
    )


def _object(value: object, name: str) -> Mapping[str, Any]:
    found = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _related(value: object) -> list[str]:
    """The applications at the other end of an endpoint: names, or objects with a name (from Juju 3.0 on)."""
    found = cast("list[Any]", value) if isinstance(value, list) else []
    return [
        str(cast("dict[str, Any]", each).get("related-application")) if isinstance(each, dict) else str(each)
        for each in found
    ]
