"""`tippingpoint check`: say what a run of a plan would do."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from tippingpoint.analysis.thresholds import limits_of
from tippingpoint.cli.run import asked_plan
from tippingpoint.cli.tables import print_table
from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.lasting import Schedule
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.manifest import new_run_id
from tippingpoint.targets.registry import target_of
from tippingpoint.util import timing
from tippingpoint.util.durations import format_duration, show_span
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.text import show_amount, show_size

_MADE = {"claim": "leases", "store": "keys", "operate": "units"}
"""What workloads make, if it is not the target's things."""
_LOGIN_WITHIN = 30.0
"""Seconds that the target may take to answer."""


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code.

    Raises TargetError if the target accepts no login, and UserError if it has no room.
    """
    plan = asked_plan(options)
    Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False).print(
        f"{plan.name}: {plan.description or 'no description'}\n"
    )
    if plan.stages:
        _print_stages(plan)
    _print_facts([*_facts(plan)])
    sys.stdout.flush()
    _print_facts([("target", asyncio.run(_ask(plan)))])
    return MET


def _print_stages(plan: Plan) -> None:
    header = ("stage", plan.load_unit, "brought up over", "hold")
    rows = [
        (str(number), show_size(size), show_span(stage.over) if stage.over else "–", show_span(stage.hold))
        for number, ((_, size), stage) in enumerate(zip(plan.loads, plan.stages, strict=True), start=1)
    ]
    print_table(header, rows)
    print()


def _print_facts(facts: list[tuple[str, str]]) -> None:
    before = ""
    for name, text in facts:
        print(f"{'' if name == before else name:12}{text}")
        before = name


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what a run would do, each fact with a heading."""
    find = plan.find
    if find is not None:
        first, most = show_size(find.start), show_amount(find.limit, plan.load_unit)
        yield "searches", f"from {first} to at most {most}, each for a hold of at most {show_span(find.hold)}"
    lasting = Schedule(plan).whole
    yield "lasts", lasting.words if lasting is not None else "as long as it takes: the plan sets no end"
    made = _made(plan)
    if made:
        yield (
            "makes",
            f"{made}, {'each removed as soon as it exists' if plan.cycles else 'all removed at the end'}",
        )
    for threshold in plan.thresholds:
        for limit in limits_of(threshold):
            sign = "≥" if limit.is_least else "≤"
            ends = "; ends the load when it is clearly missed" if threshold.abort else ""
            yield "thresholds", f"{limit.title} {sign} {limit.show(limit.allowed)}{ends}"
    for fault in plan.faults:
        of = f" of stage {fault.stage}" if fault.stage is not None else ""
        yield "faults", f"{fault.do} {fault.member or ''}".rstrip() + f" at {format_duration(fault.at)}{of}"
    watched = list(dict.fromkeys(threshold.subject for _, threshold in figures_of(plan)))
    yield (
        "watches",
        (
            f"{', '.join(watched)} (with --prometheus)"
            if watched
            else "no figures: no threshold of the plan is on a figure of Prometheus"
        ),
    )


def _made(plan: Plan) -> str:
    """Say how much a run makes in its target; empty for nothing."""
    if isinstance(plan, SpawnPlan):  # which removes groups too
        sizes = [stage.size for stage in plan.stages]
        largest = max(sizes) if sizes else plan.to_remove
        return f"{'' if plan.cycles else 'at most '}{show_amount(largest, plan.target.things)}"
    of = plan.counted if isinstance(plan, GrowPlan) else _MADE.get(plan.workload.kind, "things")
    return f"at most {show_amount(plan.to_remove, of)} at once" if plan.to_remove else ""


async def _ask(plan: Plan) -> str:
    """Log in to the target and query its capacity; returns its answer. Nothing is created."""
    target = target_of(plan.target.kind)
    try:
        async with asyncio.timeout(_LOGIN_WITHIN):
            await target.log_in(plan.target)
            said = f"{plan.target.kind} accepts the login"
            if not isinstance(plan, SpawnPlan) or not plan.stages:
                return said
            largest = max(plan.stages, key=lambda stage: stage.size)
            with tempfile.TemporaryDirectory(prefix="tippingpoint-check-") as directory:
                entry = target.new_entry(plan, new_run_id(plan.name, timing.wall()), Path(directory))
                try:
                    await target.check_room(entry, plan, largest, 0)
                except UserError as refused:
                    if refused.field.startswith("target."):
                        raise
                    number = plan.stages.index(largest)
                    raise UserError(
                        f"stages.{number}.{refused.field}", refused.value, refused.accepted
                    ) from None
            return f"{said}, and reports no lack of room for {show_amount(largest.size, plan.target.things)}"
    except TimeoutError:
        raise TargetError(
            plan.target.kind, f"no answer within {_LOGIN_WITHIN:.0f} s", "a target that answers"
        ) from None
