"""The relation `scale-run` (scale_run): generators report their runs to a collector.

docs/reference/scale-run.md is the contract.
A generator provides it. Its leader writes the run into the application's bag; each unit writes its word and its result
into its own bag. The collector requires it, and writes only its version. Content that this version does not understand
is ignored, and reported in a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import ops
from pydantic import BaseModel, Field, ValidationError

from tippingpoint.conduct.run_state import SharedRun, UnitWord, read_shared, read_word
from tippingpoint_charm.relations.databag import (
    of_app,
    of_unit,
    of_units,
    own_address,
    send,
    shown,
    spoken,
)

NAME = "scale-run"
VERSION = "1"

LARGEST_DIGEST = 65_536
"""The most characters that are read; a unit's digest has at most 40,000 (tippingpoint.digest.unit_digest)."""

_UNIT = re.compile(r"[a-z][a-z0-9-]{0,100}/[0-9]{1,9}")


class PartResult(BaseModel):
    """The result of a unit's part of a run: `digest` as made and read by tippingpoint.digest.unit_digest."""

    run: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,120}$")]
    digest: Annotated[str, Field(min_length=1, max_length=LARGEST_DIGEST, pattern=r"^[A-Za-z0-9+/=_-]*$")]


@dataclass(frozen=True)
class Reported:
    """The report of one related generator application.

    `words` and `results` are by the units' own names, as in `run.units`: across models Juju has other names for them
    here. `problems` are lines about content that was not understood.
    """

    application: str
    run: SharedRun | None = None
    words: dict[str, UnitWord] = field(default_factory=dict[str, UnitWord])
    results: dict[str, PartResult] = field(default_factory=dict[str, PartResult])
    problems: list[str] = field(default_factory=list[str])


def publish(
    charm: ops.CharmBase,
    run: SharedRun | None,
    word: UnitWord | None,
    result: Mapping[str, str] | None,
) -> None:
    """On the generator, publish this unit's word and result, and on the leader the run.

    `result` is {"run": id, "digest": text}. None withdraws what was published before.
    """
    said = {
        "version": VERSION,
        "unit": charm.unit.name,
        "word": "" if word is None else word.model_dump_json(exclude_none=True),
        "result": "" if result is None else json.dumps(dict(result)),
    }
    for relation in spoken(charm, NAME):
        send(relation, charm.unit, said)
        if charm.unit.is_leader():
            text = "" if run is None else run.model_dump_json(exclude_none=True)
            send(relation, charm.app, {"version": VERSION, "run": text})


def publish_exporter(charm: ops.CharmBase, port: int) -> None:
    """On the generator, publish the address of this unit's exporter for the collector's Prometheus."""
    for relation in spoken(charm, NAME):
        address = own_address(charm, relation)
        host = f"[{address}]" if ":" in address else address
        send(relation, charm.unit, {"exporter": f"{host}:{port}" if address else ""})


def read_exporters(charm: ops.CharmBase) -> dict[str, str]:
    """On the collector, return the addresses (HOST:PORT) of units' exporters, by the units' own names."""
    found: dict[str, str] = {}
    for relation in spoken(charm, NAME):
        for unit, said in of_units(relation) if relation.active else []:
            name = said.get("unit", "") or unit.name
            if said.get("version") == VERSION and said.get("exporter") and _UNIT.fullmatch(name):
                found.setdefault(name, said["exporter"])
    return found


def problem(charm: ops.CharmBase) -> str:
    """On the generator, return a line about a collector of another version; empty without one."""
    for relation in spoken(charm, NAME):
        version = of_app(relation).get("version", "")
        if version not in ("", VERSION):
            return f"{NAME}: {_name(relation)} speaks version {shown(version)}: expected {VERSION}"
    return ""


def publish_collector(charm: ops.CharmBase) -> None:
    """On the collector's leader, publish the version of the contract."""
    if charm.unit.is_leader():
        for relation in spoken(charm, NAME):
            send(relation, charm.app, {"version": VERSION})


def read(charm: ops.CharmBase) -> list[Reported]:
    """On the collector, return the reports of all related applications, the oldest relation first."""
    return [_read(relation) for relation in spoken(charm, NAME)]


def read_changed(relation: ops.Relation, unit: ops.Unit | None) -> Reported:
    """On the collector, return the report in one unit's bag, or in the application's if `unit` is None.

    With many units, a hook reads only the unit that it is about.
    """
    if unit is None:
        return _reported(relation, of_app(relation))
    reported = Reported(_name(relation))
    _add(reported, unit, of_unit(relation, unit))
    return reported


def _read(relation: ops.Relation) -> Reported:
    reported = _reported(relation, of_app(relation))
    for unit, said in of_units(relation):
        _add(reported, unit, said)
    return reported


def _reported(relation: ops.Relation, bag: Mapping[str, str]) -> Reported:
    name = _name(relation)
    run = read_shared(bag.get("run")) if bag.get("version") == VERSION else None
    return Reported(name, run=run, problems=_problems(name, bag, ("run",)))


def _add(reported: Reported, unit: ops.Unit, said: Mapping[str, str]) -> None:
    reported.problems.extend(_problems(unit.name, said, ("word", "result")))
    if said.get("version") != VERSION:
        return
    name = said.get("unit", "") or unit.name
    if not _UNIT.fullmatch(name):
        reported.problems.append(f"{NAME}: {unit.name}: unit: {shown(name)}: expected a unit's name")
    elif name in reported.words or name in reported.results:
        reported.problems.append(f"{NAME}: {unit.name}: unit: {name}: expected a name that no other unit has")
    else:
        word, result = read_word(said.get("word")), _result(said.get("result"))
        if word is not None:
            reported.words[name] = word
        if result is not None:
            reported.results[name] = result


def _result(text: str | None) -> PartResult | None:
    try:
        return PartResult.model_validate_json(text) if text else None
    except (ValidationError, RecursionError):
        return None


_READERS: dict[str, Callable[[str], object]] = {"run": read_shared, "word": read_word, "result": _result}


def _problems(who: str, bag: Mapping[str, str], keys: tuple[str, ...]) -> list[str]:
    """Return the keys of a bag that cannot be understood, except those of Juju and of later versions."""
    version = bag.get("version", "")
    if version not in ("", VERSION):
        return [f"{NAME}: {who} speaks version {shown(version)}: expected {VERSION}"]
    given = [key for key in keys if bag.get(key)]
    if given and not version:
        return [f"{NAME}: {who} names no version: expected {VERSION}"]
    return [
        f"{NAME}: {who}: {key}: expected what docs/reference/scale-run.md says"
        for key in given
        if _READERS[key](bag[key]) is None
    ]


def _name(relation: ops.Relation) -> str:
    return relation.app.name
