"""Lists that say what has changed: nothing else is looked at, and nothing is missed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.workloads.memory_target import Told
from tippingpoint.workloads.spawn.fill import Fill, Goal, Level, Standing
from tippingpoint.workloads.spawn.members import Members
from tippingpoint.workloads.spawn.target import Item, Seen

UP = Seen(running=True, member="")
MANY = 50


class Counted(Told):
    """Counts the things that were looked up; nobody may go through all of them."""

    looked_up = 0

    def __getitem__(self, item: Item) -> Seen:
        self.looked_up += 1
        return super().__getitem__(item)

    def __iter__(self) -> Iterator[Item]:
        raise AssertionError("all things were gone through")


def filled(known: dict[int, dict[Item, Seen]]) -> tuple[Fill, dict[Item, Seen]]:
    """A group that is as wanted, and that was compared with a whole list."""
    fill = Fill(Members(5), repair=True, evict=False)
    fill.begin(Goal(1, MANY, Level.STARTED), [0])
    listed = {Item(0, number): UP for number in range(MANY)}
    fill.see(0, Told(0, listed, known), asked=1.0)
    assert fill.held == MANY
    return fill, listed


def test_only_what_has_changed_is_compared_once_all_was() -> None:
    """Given 50 things as wanted, when a list says that one is gone, then only that one is looked at, and made again."""
    known: dict[int, dict[Item, Seen]] = {}
    fill, listed = filled(known)
    told = Counted(0, {item: seen for item, seen in listed.items() if item.number != 7}, known)
    looked = fill.see(0, told, asked=2.0)
    assert [thing.item for thing in looked.todo] == [Item(0, 7)]
    assert looked.lost.total() == 1
    assert told.looked_up <= 2


def test_what_a_list_was_too_old_for_is_compared_with_the_next_though_nothing_changed() -> None:
    """Given a thing that was touched after a list was asked for, then the next list decides."""
    known: dict[int, dict[Item, Seen]] = {}
    fill, listed = filled(known)
    thing = next(each for each in fill.things() if each.item == Item(0, 7))
    thing.touched = 3.0
    without = {item: seen for item, seen in listed.items() if item.number != 7}
    assert fill.see(0, Counted(0, without, known), asked=2.0).todo == []
    assert thing.standing is Standing.HELD
    assert fill.see(0, Counted(0, without, known), asked=4.0).todo == [thing]


def test_a_stage_begins_with_all_things() -> None:
    """Given an answer to a list that nobody took, and a new stage, then nothing of it is missed."""
    known: dict[int, dict[Item, Seen]] = {}
    fill, listed = filled(known)
    known[0] = {**listed, Item(0, MANY): UP}  # as if a list with one more had been taken
    fill.begin(Goal(1, MANY, Level.STARTED), [0])
    fill.see(0, Told(0, known[0], known), asked=2.0)
    assert fill.left == 1
