"""Reads and writes the databags of the peer relation between the units of a generator.

The leader writes the run into the application's bag. Each unit writes its word and its result into its own bag.
Content that cannot be understood is ignored.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Collection, Mapping
from typing import cast

import ops
from pydantic import ValidationError

from tippingpoint.conduct.run_state import SharedRun, UnitWord, is_news, read_shared, read_word
from tippingpoint.conduct.search_messages import ProbeReport, read_report
from tippingpoint_charm.machine import Machine
from tippingpoint_charm.relations.databag import of_unit, own, write

NAME = "units"
LARGEST_RUN = 60_000
"""The most characters of a run in the application's bag. A whole bag has at most 64 KiB."""


class Peers(ops.Object):
    """The peer relation, and what the leader remembers of it.

    Reading the bags of 100 units takes seconds, because each runs a program that calls the controller. So a new leader
    reads all of them once, and from then on only the bag that a hook is about.
    """

    _stored = ops.StoredState()

    def __init__(self, charm: ops.CharmBase, machine: Machine) -> None:
        super().__init__(charm, "peers")
        self._charm = charm
        self._machine = machine
        self._stored.set_default(listens=False, words={}, results={})
        self._departing: str | None = None

    # -- who is there --------------------------------------------------------------------------------

    @property
    def relation(self) -> ops.Relation | None:
        """The relation; None before Juju has made it."""
        found = self._charm.model.relations[NAME]
        return found[0] if found else None

    def departs(self, unit: ops.Unit | None) -> None:
        """Note that a unit departs in this hook, although ops still counts it."""
        self._departing = None if unit is None else unit.name

    @property
    def others(self) -> list[ops.Unit]:
        """The other units in the relation, by number. On the leader, only those that Juju means to keep."""
        relation = self.relation
        there: set[ops.Unit] = set() if relation is None else relation.units
        there = {unit for unit in there if unit.name != self._departing and unit != self._charm.unit}
        if there and self._charm.unit.is_leader():
            there = {unit for unit in there if unit.name in self._to_stay} if self._to_stay else there
        return sorted(
            there,
            key=lambda unit: int(unit.name.rpartition("/")[2]),
        )

    @functools.cached_property
    def _to_stay(self) -> set[str]:
        """The units that Juju means to keep, asked once in a hook; empty if unknown, or if this unit is to go, too."""
        found = self._machine.units_to_stay() or set()
        return found if self._charm.unit.name in found else set()

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the other units, as Juju publishes them; those without one are left out."""
        relation = self.relation
        if relation is None:
            return {}
        found = {unit.name: of_unit(relation, unit).get("ingress-address", "") for unit in self.others}
        return {unit: address for unit, address in found.items() if address}

    # -- the run -------------------------------------------------------------------------------------

    @property
    def run(self) -> SharedRun | None:
        """The current run, or the last one; None without any."""
        relation = self.relation
        return None if relation is None else _read_run(own(relation, self._charm.app).get("run"))

    def write_run(self, run: SharedRun) -> bool:
        """Publish a run to all units; False if another unit is the leader by now."""
        relation = self.relation
        if relation is None:
            return False
        try:
            write(relation, self._charm.app, {"run": run.model_dump_json(exclude_none=True)})
        except ops.ModelError:  # includes RelationDataAccessError
            return False
        return True

    # -- words ---------------------------------------------------------------------------------------

    def said(self) -> UnitWord | None:
        """Return this unit's published word."""
        relation = self.relation
        return None if relation is None else read_word(own(relation, self._charm.unit).get("word"))

    def say(
        self,
        word: UnitWord | None,
        result: Mapping[str, str] | None,
        units: int,
        report: ProbeReport | None = None,
    ) -> None:
        """Publish this unit's word if it has news or the last one is old enough, and its result and its report at once.

        `units` is the number of units: each word runs a hook on every other unit.
        """
        relation = self.relation
        if relation is None:
            return
        content = {
            "result": "" if result is None else json.dumps(dict(result)),
            "probe": "" if report is None else report.model_dump_json(exclude_defaults=True),
        }
        before = self.said()
        if word is None:
            content["word"] = ""
        elif before is None or is_news(word, before, units):
            content["word"] = word.model_dump_json(exclude_none=True)
        write(relation, self._charm.unit, content)

    def bag_of(self, unit: ops.Unit) -> tuple[UnitWord | None, tuple[str, str] | None]:
        """Return the word of another unit, which may have left, and its result (run and digest), from its bag."""
        relation = self.relation
        bag = {} if relation is None else of_unit(relation, unit)
        return read_word(bag.get("word")), read_result(bag.get("result"))

    def word_of(self, unit: str) -> UnitWord | None:
        """Return the word of one other unit from its bag."""
        found = next((other for other in self.others if other.name == unit), None)
        relation = self.relation
        return None if found is None or relation is None else read_word(of_unit(relation, found).get("word"))

    def reports(self, units: Collection[str]) -> dict[str, ProbeReport]:
        """Return what other units measured of their latest turn of a search, of those of these that say so."""
        relation = self.relation
        found: dict[str, ProbeReport] = {}
        for unit in self.others if relation is not None else ():
            if relation is not None and unit.name in units:
                report = read_report(of_unit(relation, unit).get("probe"))
                if report is not None:
                    found[unit.name] = report
        return found

    def read_all(self) -> tuple[dict[str, UnitWord | None], dict[str, tuple[str, str]]]:
        """Return the words of all other units, and their results (run and digest), from their bags."""
        relation = self.relation
        words: dict[str, UnitWord | None] = {}
        results: dict[str, tuple[str, str]] = {}
        if relation is None:
            return words, results
        for unit in self.others:
            bag = of_unit(relation, unit)
            words[unit.name] = read_word(bag.get("word"))
            result = read_result(bag.get("result"))
            if result is not None:
                results[unit.name] = result
        return words, results

    # -- what the leader remembers ---------------------------------------------------------------------

    def listen(self, changed: ops.Unit | None = None, *, anew: bool = False) -> None:
        """On the leader, remember the word of the unit that changed, or with `anew` all words. Others forget them."""
        if not self._charm.unit.is_leader():
            if self._stored.listens:
                self._stored.listens = False
                self._stored.words, self._stored.results = {}, {}
        elif anew or not self._stored.listens:
            words, results = self.read_all()
            self._stored.words = {
                **{name: text for name, text in self._texts("words").items() if _is_last(read_word(text))},
                **{name: _text(word) for name, word in words.items()},
            }
            self._stored.results = {name: run for name, (run, _) in results.items()}
            self._stored.listens = True
        elif changed is not None and (relation := self.relation) is not None:
            bag = of_unit(relation, changed)
            self._texts("words")[changed.name] = _text(read_word(bag.get("word")))
            result = read_result(bag.get("result"))
            self._texts("results")[changed.name] = "" if result is None else result[0]

    def remembered(self) -> dict[str, UnitWord | None]:
        """Return the word of every other unit, and the last word of units that left. Only the leader remembers any."""
        words = {name: read_word(text) for name, text in self._texts("words").items()}
        there = {unit.name for unit in self.others}
        return {
            **{name: word for name, word in words.items() if name not in there and _is_last(word)},
            **{name: words.get(name) for name in there},
        }

    def have_reported(self, run: str) -> set[str]:
        """Return the other units whose result of this run the leader has seen."""
        results = self._texts("results")
        return {unit.name for unit in self.others if results.get(unit.name) == run}

    def _texts(self, name: str) -> dict[str, str]:
        return cast("dict[str, str]", getattr(self._stored, name))


@functools.lru_cache(maxsize=1)
def _read_run(text: str | None) -> SharedRun | None:
    """Return the run in a text if its plan is valid and its turns belong to it. A hook asks several times."""
    run = read_shared(text)
    if run is None:
        return None
    try:
        plan = run.validated()
    except (ValidationError, RecursionError):
        return None
    known = run.searches or all(turn.stage <= len(plan.stages) for turn in run.turns)
    return run if known else None


def read_result(text: str | None) -> tuple[str, str] | None:
    """Return the run and the digest in a unit's databag; None without them."""
    try:
        content: object = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    match content:
        case {"run": str(run), "digest": str(digest)}:
            return run, digest
        case _:
            return None


def _text(word: UnitWord | None) -> str:
    return "" if word is None else word.model_dump_json(exclude_none=True)


def _is_last(word: UnitWord | None) -> bool:
    """Tell whether a word is the last one that a unit has to say."""
    return word is not None and word.has_ended


def now_by_reference(word: UnitWord | None) -> float:
    """Return the present moment on the reference's clock; on this unit's own clock while the offset is unknown."""
    ahead = 0.0 if word is None or word.offset is None else word.offset
    return time.time() - ahead
