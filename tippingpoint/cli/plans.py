"""`tippingpoint plans`: list the shipped plans."""

from __future__ import annotations

import argparse
import json
import sys

from tippingpoint.cli.listing import print_list
from tippingpoint.plan.shipped import plan_text, shipped_plans
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.fast_yaml import field_of


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if options.schema:
        from tippingpoint.plan.read import plan_schema

        print(json.dumps(plan_schema(), indent=2))
    elif options.name is not None:
        sys.stdout.write(_checked(options.name))
    else:
        rows = [(name, field_of(text, "description")) for name, text in shipped_plans().items()]
        print_list(("plan", "what it does"), rows)
    return MET


def _checked(name: str) -> str:
    """The text of a plan. A file is validated. Shipped plans are valid, which a test checks."""
    text = plan_text(name)
    if shipped_plans().get(name) != text:
        from tippingpoint.plan.read import parse_plan

        parse_plan(text, source=name)
    return text
