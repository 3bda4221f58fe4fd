"""`tippingpoint baselines`: the published results."""

from __future__ import annotations

import argparse
import json
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from tippingpoint.compare.baselines import Baseline, list_baselines, load_baseline
from tippingpoint.util.exit_codes import MET


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the figures of this baseline")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    if options.name is not None:
        baseline = load_baseline(options.name)
        print(json.dumps(_document(baseline), indent=2, ensure_ascii=False))
        return MET
    found = list_baselines()
    if options.json:
        print(json.dumps([_document(baseline) for baseline in found], indent=2, ensure_ascii=False))
        return MET
    table = Table("baseline", "what was published", box=None, pad_edge=False)
    for baseline in found:
        table.add_row(f"seed:{baseline.name}", baseline.title)
    Console().print(table, highlight=False)
    return MET


def _document(baseline: Baseline) -> Any:
    return orjson.loads(baseline.model_dump_json(exclude_none=True))
