"""What the units of a generator say to each other, in the databags of their peer relation.

The leader writes the run into the application's bag; every unit its word, and what its part came to, into its own.
What cannot be understood is taken for not said.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping
from typing import Any, cast

import ops
from pydantic import ValidationError

from tippingpoint.units.shared_run import (
    SharedRun,
    UnitWord,
    read_shared,
    read_word,
    reports_phases,
    word_every,
)
from tippingpoint_charm.machine import Machine
from tippingpoint_charm.relations.databag import of_unit, own, write

NAME = "units"
LARGEST_RUN = 60_000
"""Characters of a run in the application's bag; what we promise of a bag is 64 KiB."""


class Peers(ops.Object):
    """The peer relation, and what the leader remembers of it.

    With 100 units it takes seconds to read all bags, each being a program that is run and a call to the controller. So
    the leader reads them once when it becomes that, and from then on the one that a hook is about.
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
        """In this hook a unit goes, which ops still counts."""
        self._departing = None if unit is None else unit.name

    @property
    def others(self) -> list[ops.Unit]:
        """The other units that are there, by number; the leader's are those alone that are to stay."""
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
        """Asked of Juju once in a hook; empty where it does not say, or means us to go as well."""
        found = self._machine.units_to_stay() or set()
        return found if self._charm.unit.name in found else set()

    # -- the run -------------------------------------------------------------------------------------

    @property
    def run(self) -> SharedRun | None:
        """The run as the leader has it, the last one when none goes on; None where there is none."""
        relation = self.relation
        return None if relation is None else _read_run(own(relation, self._charm.app).get("run"))

    def write_run(self, run: SharedRun) -> bool:
        """Tell everybody; False when that cannot be, as another unit is the leader by now."""
        relation = self.relation
        if relation is None:
            return False
        try:
            write(relation, self._charm.app, {"run": run.model_dump_json(exclude_none=True)})
        except ops.ModelError:  # which RelationDataAccessError is too
            return False
        return True

    # -- words ---------------------------------------------------------------------------------------

    def said(self) -> UnitWord | None:
        """The word of ours that the others see."""
        relation = self.relation
        return None if relation is None else read_word(own(relation, self._charm.unit).get("word"))

    def say(self, word: UnitWord | None, result: Mapping[str, str] | None, units: int) -> None:
        """Publish our word when there is news in it, or the others have waited long enough; the result at once.

        `units` is how many there are: each word is a hook of every other one.
        """
        relation = self.relation
        if relation is None:
            return
        content = {"result": "" if result is None else json.dumps(dict(result))}
        before = self.said()
        if word is None:
            content["word"] = ""
        elif before is None or _news(word, units) != _news(before, units) or _is_due(word, before, units):
            content["word"] = word.model_dump_json(exclude_none=True)
        write(relation, self._charm.unit, content)

    def bag_of(self, unit: ops.Unit) -> tuple[UnitWord | None, tuple[str, str] | None]:
        """The word of another unit, gone or not, and its result as run and digest, from its bag."""
        relation = self.relation
        bag = {} if relation is None else of_unit(relation, unit)
        return read_word(bag.get("word")), read_result(bag.get("result"))

    def word_of(self, unit: str) -> UnitWord | None:
        """What one other unit says, from its bag."""
        found = next((other for other in self.others if other.name == unit), None)
        relation = self.relation
        return None if found is None or relation is None else read_word(of_unit(relation, found).get("word"))

    def read_all(self) -> tuple[dict[str, UnitWord | None], dict[str, tuple[str, str]]]:
        """The words of all other units, and the results as run and digest, from their bags."""
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
        """As the leader, remember what others say: of the unit that changed, or `anew` of all. Others forget it."""
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
        """The word of every other unit that is there, and the last one of those that said it; the leader's to know."""
        words = {name: read_word(text) for name, text in self._texts("words").items()}
        there = {unit.name for unit in self.others}
        return {
            **{name: word for name, word in words.items() if name not in there and _is_last(word)},
            **{name: words.get(name) for name in there},
        }

    def have_reported(self, run: str) -> set[str]:
        """The other units whose result of this run the leader has seen."""
        results = self._texts("results")
        return {unit.name for unit in self.others if results.get(unit.name) == run}

    def _texts(self, name: str) -> dict[str, str]:
        return cast("dict[str, str]", getattr(self._stored, name))


@functools.lru_cache(maxsize=1)
def _read_run(text: str | None) -> SharedRun | None:
    """The run in a text, when its plan is one and its turns are of that plan; a hook asks for it several times."""
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
    """The run and the digest in a unit's databag; None where there is none."""
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
    """Whether a unit that is gone by now needs to say no more."""
    return word is not None and word.phase in ("over", "failed")


def _news(word: UnitWord, units: int) -> dict[str, Any]:
    news = word.model_dump(include={"run", "phase", "turn", "problem", "clock", "leaves"})
    if reports_phases(units):
        news["doing"] = None if word.progress is None else word.progress.phase
    return news


def _is_due(word: UnitWord, before: UnitWord, units: int) -> bool:
    # The agent wakes us by a clock of its own: a tenth of the time is for what lies between.
    return not 0 <= word.t - before.t < 0.9 * word_every(units)


def now_by_reference(word: UnitWord | None) -> float:
    """The moment now on the clock that all units of a run go by; our own clock before it is known better."""
    ahead = 0.0 if word is None or word.offset is None else word.offset
    return time.time() - ahead
