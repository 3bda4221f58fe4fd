"""`tippingpoint run`: run a plan."""

from __future__ import annotations

import argparse
import json

from tippingpoint.cli.running import add_run_options, run_to_report
from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import facts_of, kinds
from tippingpoint.plan.read import load_plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN", help="a plan's file, or the name of a shipped plan (tippingpoint plans)"
    )
    parser.add_argument(
        "--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[],
        help="another value for a field of the plan: workload.renew_time=10s, stages.0.hold=1m; may be repeated",
    )  # fmt: skip
    for option, kind in _options().items():
        text = f"{facts_of(kind).options[option]}, as target.{option}"
        parser.add_argument(f"--{option}", metavar="NAME", help=text)
    add_run_options(parser)


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    plan = load_plan(options.plan, options.overrides)
    for option, kind in _options().items():
        name = getattr(options, option)
        if name is not None:
            if plan.target.kind != kind:
                raise UserError(f"--{option}", name, f"a plan whose target is {kind}")
            options.overrides.append(f"target.{option}={json.dumps(name)}")
            plan = load_plan(options.plan, options.overrides)
    return run_to_report(plan, options, None)


def _options() -> dict[str, str]:
    """The options that stand for fields of targets, and the kind of target of each."""
    return {option: kind for kind in kinds() for option in facts_of(kind).options}
