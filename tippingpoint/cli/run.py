"""`tippingpoint run`: run a plan."""

from __future__ import annotations

import argparse
import json

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import options as target_options
from tippingpoint.plan.shipped import plan_text
from tippingpoint.util.importing import importing


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    text = plan_text(options.plan)  # a plan that is nowhere is refused before anything large is imported
    with importing():
        from tippingpoint.plan.read import parse_plan

    plan = parse_plan(text, options.overrides, options.plan)
    for option, (kind, _) in target_options().items():
        name = getattr(options, option)
        if name is not None:
            if plan.target.kind != kind:
                raise UserError(f"--{option}", name, f"a plan whose target is {kind}")
            options.overrides.append(f"target.{option}={json.dumps(name)}")
            plan = parse_plan(text, options.overrides, options.plan)
    with importing():
        from tippingpoint.cli.running import run_to_report

    return run_to_report(plan, options, None)
