"""`tippingpoint plans`: list the shipped plans."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tippingpoint.plan.read import load_plan, parse_plan, plan_schema, shipped_plans
from tippingpoint.util.exit_codes import MET


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument("name", nargs="?", metavar="PLAN", help="print this plan as YAML")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of plans")


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    if options.schema:
        print(json.dumps(plan_schema(), indent=2))
        return MET
    plans = shipped_plans()
    if options.name is not None:
        load_plan(options.name)
        sys.stdout.write(
            plans[options.name] if options.name in plans else Path(options.name).read_text("utf-8")
        )
        return MET
    table = Table("plan", "what it does", box=None, pad_edge=False)
    for name, text in plans.items():
        table.add_row(name, parse_plan(text, source=name).description)
    Console().print(table, highlight=False)
    return MET
