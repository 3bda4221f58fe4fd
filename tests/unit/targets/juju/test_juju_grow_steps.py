"""What a spawn stage needs: which calls lead from what is in a model to what a stage asks for."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.plan.grow import GrowStage
from tippingpoint.targets.juju.grow_steps import (
    Existing,
    Goal,
    Pair,
    Share,
    Step,
    is_done,
    placement,
    steps,
    waits_for,
)
from tippingpoint.targets.juju.hollow import application_name, instance_id

PREFIX = "tp00000000"


@st.composite
def stages(draw: st.DrawFn) -> GrowStage:
    applications = draw(st.integers(0, 7))
    units = draw(st.integers(0, 5))
    machines = draw(st.integers(1 if applications and units else 0, 5))
    relations = draw(st.integers(0, applications * (applications - 1) // 2))
    return GrowStage(machines=machines, applications=applications, units=units, relations=relations)


class Model:
    """A model in memory that takes steps as a controller does: names count up, and removal takes until `settle`."""

    def __init__(self) -> None:
        self.machines: dict[str, str] = {}
        self.applications: dict[str, dict[str, str]] = {}
        self.relations: set[tuple[str, str]] = set()
        self.dying: set[str] = set()
        self.made = 0

    def status(self) -> dict[str, Any]:
        """What a full status of it looks like."""

        def life(thing: str) -> str:
            return "dying" if thing in self.dying else "alive"

        return {
            "machines": {
                name: {"instance-id": instance, "agent-status": {"life": life(name)}}
                for name, instance in self.machines.items()
            },
            "applications": {
                name: {
                    "life": life(name),
                    "units": {
                        unit: {"machine": machine, "agent-status": {"life": life(unit)}}
                        for unit, machine in units.items()
                    },
                }
                for name, units in self.applications.items()
            },
            "relations": [
                {"endpoints": [{"application": one}, {"application": other}]} for one, other in self.relations
            ]
            + [{"endpoints": [{"application": name}]} for name in self.applications],
        }

    def take(self, step: Step, existing: Existing, goal: Goal, worker: str) -> None:
        """Do a step, asserting that the things it depends on exist."""
        name = application_name(PREFIX, step.number)
        self.made += 1
        match step.operation:
            case "add-machine":
                self.machines[str(self.made)] = instance_id(PREFIX, worker, step.number)
            case "deploy" | "add-unit":
                machines = placement(existing, goal, step.count)
                assert len(machines) == step.count
                assert set(machines) <= set(self.machines) - self.dying
                assert (name in self.applications) == (step.operation == "add-unit")
                units = self.applications.setdefault(name, {})
                units |= {f"{name}/{self.made * 100 + place}": on for place, on in enumerate(machines)}
            case "relate":
                ends = application_name(PREFIX, step.number), application_name(PREFIX, step.other)
                assert ends not in self.relations
                assert self.applications.keys() >= set(ends)
                self.relations.add(ends)
            case "remove-relation":
                self.relations.remove((name, application_name(PREFIX, step.other)))
            case "remove-unit":
                assert self.dying.isdisjoint(step.units)
                self.dying.update(step.units)
            case "remove-application":
                self.dying.add(name)
            case _:
                machine = existing.machines[step.number]
                assert all(machine not in units.values() for units in self.applications.values())
                self.dying.add(machine)

    def settle(self) -> None:
        """What is dying goes, and an application's units and relations with it."""
        self.machines = {name: spec for name, spec in self.machines.items() if name not in self.dying}
        self.applications = {
            name: {unit: on for unit, on in units.items() if unit not in self.dying}
            for name, units in self.applications.items()
            if name not in self.dying
        }
        self.relations = {ends for ends in self.relations if self.applications.keys() >= set(ends)}
        self.dying.clear()


def work_off(model: Model, stage: GrowStage, shares: list[Share], batch: int, rounds: int = 12) -> int:
    """Let every share bring its part to the stage; how many calls that took."""
    calls = 0
    for _ in range(rounds):
        done = True
        for share in shares:
            worker = str(share.index)
            goal = Goal.of(stage, share)
            existing = Existing.of(model.status(), share, PREFIX, worker)
            done = done and is_done(goal, existing)
            for step in steps(goal, existing, batch):
                existing = Existing.of(model.status(), share, PREFIX, worker)
                if waits_for(step, existing) is None:
                    model.take(step, existing, goal, worker)
                    calls += 1
        if done:
            return calls
        model.settle()
    raise AssertionError(f"not reached after {rounds} rounds")


@given(st.lists(stages(), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
def test_any_stages_converge_and_nothing_is_left_at_the_end(
    plan: list[GrowStage], workers: int, batch: int
) -> None:
    # given a model and any number of workers
    model = Model()
    plan = [*plan, GrowStage(machines=0)]
    shares = [Share.among(plan, index, workers) for index in range(workers)]
    for stage in plan:
        # when they work a stage off
        work_off(model, stage, shares, batch)
        # then the model is what the stage says, and no call is left to make
        assert len(model.machines) == stage.machines
        assert len(model.applications) == stage.applications
        assert {len(units) for units in model.applications.values()} <= {stage.units}
        assert len(model.relations) == stage.relations
        assert work_off(model, stage, shares, batch) == 0
    assert not model.machines
    assert not model.applications


@given(stages(), st.integers(1, 4), st.integers(1, 4), st.data())
def test_what_is_lost_is_made_again(stage: GrowStage, workers: int, batch: int, data: st.DataObject) -> None:
    # given a model that is what a stage asks for
    model = Model()
    shares = [Share.among([stage], index, workers) for index in range(workers)]
    work_off(model, stage, shares, batch)
    # when any of it goes
    things = [*model.applications, *(unit for units in model.applications.values() for unit in units)]
    lost = data.draw(st.sets(st.sampled_from(things))) if things else set[str]()
    model.dying |= lost
    model.settle()
    # then it comes back
    work_off(model, stage, shares, batch)
    assert sum(map(len, model.applications.values())) == stage.size
    assert len(model.relations) == stage.relations


@given(stages(), stages(), st.integers(1, 4), st.integers(1, 4))
def test_shares_that_are_dealt_anew_take_over_what_others_made(
    before: GrowStage, after: GrowStage, workers: int, batch: int
) -> None:
    # given a model that workers have brought to a stage
    model = Model()
    work_off(model, before, [Share.among([before], index, workers) for index in range(workers)], batch)
    # when the next one has machines for another number of them
    work_off(model, after, [Share.among([after], index, workers) for index in range(workers)], batch)
    # then it is reached all the same, and no machine went before its last unit
    assert len(model.machines) == after.machines
    assert {len(units) for units in model.applications.values()} <= {after.units}
    assert (len(model.applications), len(model.relations)) == (after.applications, after.relations)


@given(stages(), st.integers(1, 6))
def test_shares_have_everything_once(stage: GrowStage, workers: int) -> None:
    shares = [Share.among([stage], index, workers) for index in range(workers)]
    goals = [Goal.of(stage, share) for share in shares]
    assert sorted(n for goal in goals for n in goal.machines) == list(range(stage.machines))
    assert sorted(n for goal in goals for n in goal.applications) == list(range(stage.applications))
    assert sum(goal.relations for goal in goals) == stage.relations
    pairs = [pair for share in shares for pair in share.pairs(stage.applications)]
    assert len(pairs) == len(set(pairs)) == stage.applications * (stage.applications - 1) // 2
    # and whoever has units has a machine for them
    assert all(goal.machines for goal in goals if goal.applications and goal.units)


def test_few_relations_are_between_a_workers_own_applications() -> None:
    # given two workers with four applications each, and as many relations as these have pairs
    shares = [Share(0, 2), Share(1, 2)]
    stage = GrowStage(machines=2, applications=8, units=1, relations=12)
    for share in shares:
        goal = Goal.of(stage, share)
        chosen = [step.pair for step in steps(goal, Existing(), 1) if step.operation == "relate"]
        # then no worker has to wait for the other
        assert len(chosen) == 6
        assert all(one % 2 == other % 2 == share.index for one, other in chosen)


def test_units_are_asked_for_as_add_unit_does() -> None:
    # given one unit on one of 64 machines, as `juju deploy` leaves it
    share = Share(0, 1)
    existing = Existing({n: str(n) for n in range(64)})
    existing.add_units(0, {f"{application_name(PREFIX, 0)}/0": "0"})
    # when there are to be 64
    goal = Goal.of(GrowStage(machines=64, applications=1, units=64), share)
    # then that is the published call, add-unit -n 63, each unit on a machine of its own
    assert steps(goal, existing, 63) == [Step("add-unit", 0, count=63)]
    assert sorted(placement(existing, goal, 63), key=int) == [str(n) for n in range(1, 64)]


def test_what_is_under_way_is_counted_when_units_are_placed() -> None:
    existing = Existing({0: "m0", 1: "m1"})
    goal = Goal.of(GrowStage(machines=2, applications=4, units=1), Share(0, 1))
    first = placement(existing, goal, 1)
    existing.reserve(first)
    assert {*first, *placement(existing, goal, 1)} == {"m0", "m1"}
    existing.unreserve(first)
    assert placement(existing, goal, 1) == first


def test_calls_come_in_an_order_in_which_each_has_what_it_needs() -> None:
    goal = Goal.of(GrowStage(machines=1, applications=2, units=2, relations=1), Share(0, 1))
    assert [step.operation for step in steps(goal, Existing(), 1)] == [
        "add-machine", "deploy", "deploy", "add-unit", "add-unit", "relate",
    ]  # fmt: skip


def test_calls_wait_for_what_they_need() -> None:
    empty, existing = Existing(), Existing({0: "0"})
    existing.add_units(0, {})
    assert waits_for(Step("deploy", 0, count=1), empty) == "machine"
    assert waits_for(Step("deploy", 0), empty) is None
    assert waits_for(Step("add-unit", 1, count=1), existing) == ("application", 1)
    assert waits_for(Step("relate", 0, 1), existing) == ("application", 1)
    existing.others.add(1)
    assert waits_for(Step("relate", 0, 1), existing) is None


def test_a_machine_goes_when_its_last_unit_is_gone() -> None:
    # given a unit that is going, on a machine that is to go
    unit = f"{application_name(PREFIX, 0)}/0"
    existing = Existing({0: "0"})
    existing.add_units(0, {unit: "0"})
    goal = Goal.of(GrowStage(machines=0), Share(0, 1))
    existing.going |= {unit, ("application", 0)}
    # then it is not asked to go before, and the goal is not reached before either
    assert steps(goal, existing, 1) == []
    assert not is_done(goal, existing)
    assert steps(goal, Existing({0: "0"}), 1) == [Step("remove-machine", 0)]


def test_only_relations_between_what_stays_are_removed_by_themselves() -> None:
    def related(pairs: set[Pair]) -> Existing:
        existing = Existing({0: "0"}, relations=pairs)
        for number in range(3):
            existing.add_units(number, {f"{application_name(PREFIX, number)}/0": "0"})
        return existing

    goal = Goal.of(GrowStage(machines=1, applications=2, units=1), Share(0, 1))
    assert steps(goal, related({(0, 1), (1, 2)}), 1) == [
        Step("remove-relation", 0, 1),
        Step("remove-application", 2),
    ]


def test_others_things_are_left_alone() -> None:
    # given a model with machines and applications that are not the run's, and another worker's
    status: dict[str, Any] = {
        "machines": {
            "0": {"instance-id": "i-1"},
            "1": {"instance-id": instance_id(PREFIX, "10", 0)},
            "2": {"instance-id": instance_id(PREFIX, "1", 3)},
        },
        "applications": {
            "mysql": {"units": {"mysql/0": {"machine": "0"}}},
            "tp11111111-l0": {"units": {}},
            application_name(PREFIX, 2): {"units": {}},
        },
        "relations": [],
    }
    # when worker 1 of 2 looks
    existing = Existing.of(status, Share(1, 2), PREFIX, "1")
    # then it sees its machine as its own and the other's application as that
    assert existing.machines == {3: "2"}
    assert existing.units == {}
    assert existing.others == {2}
    goal = Goal.of(GrowStage(machines=0), Share(1, 2))
    assert steps(goal, existing, 1) == [Step("remove-machine", 3)]
