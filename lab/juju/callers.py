"""Units that ask: a unit may only ask about itself, its application, and its relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.juju.machines import unit_name
from lab.juju.methods import facade
from lab.juju.model import Unit
from lab.juju.refusals import not_found, permission_denied
from lab.juju.relation import Relation
from lab.juju.rpc import Call, for_each

facade("Uniter", "unit")


def own_unit(call: Call, tag: str) -> Unit:
    """Return the unit of a tag, if it is the one that asks."""
    name = call.entity.id
    if unit_name(tag) != name:
        raise permission_denied()
    unit = call.model.unit(name)
    if unit is None:
        raise not_found(f'unit "{name}"')
    return unit


def leads(call: Call, unit: Unit) -> bool:
    """Tell whether a unit is its application's leader."""
    return call.model.leases.holder(unit.application) == unit.name


def for_each_unit(
    call: Call, answer: Callable[[Unit], dict[str, Any]], refused: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Answer a bulk request about units."""
    entities = call.params["entities"]
    return {"results": for_each(entities, lambda entity: answer(own_unit(call, str(entity["tag"]))), refused)}


def for_each_relation(
    call: Call, answer: Callable[[Unit, Relation], dict[str, Any]], refused: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Answer a bulk request about relations of units."""

    def one(params: dict[str, Any]) -> dict[str, Any]:
        unit = own_unit(call, str(params["unit"]))
        return answer(unit, relation_of(call, unit, params["relation"]))

    return {"results": for_each(call.params["relation-units"], one, refused)}


def relation_of(call: Call, unit: Unit, tag: object) -> Relation:
    """Return a unit's relation by its tag."""
    for relation in call.model.relations_of(unit.application):
        if relation.tag == tag:
            return relation
    raise permission_denied()


def if_any(key: str, value: Any) -> dict[str, Any]:
    """Return a field that Go leaves out if it is empty."""
    return {key: value} if value else {}
