"""`tippingpoint compare`: runs beside one another."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.compare.named import compare_named
from tippingpoint.report import write_comparison
from tippingpoint.util.exit_codes import MET, MISSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments and options."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="runs' directories, or seed:NAME")
    parser.add_argument(
        "--baseline", metavar="NAME", help="hold them against this one: a RUN of them, or another (the first)"
    )
    parser.add_argument(
        "--format", choices=("html", "md", "json"), default="md", help="how it is written (md)"
    )
    parser.add_argument(
        "--tolerance", type=_tolerance, default=0.10, metavar="SHARE", help="worse by more than this (0.10)"
    )


def do(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    names: list[str] = options.runs
    if options.baseline is not None:
        names = [options.baseline, *(name for name in names if name != options.baseline)]
    comparison = compare_named(names, options.tolerance)
    sys.stdout.write(write_comparison(comparison, options.format))
    sys.stdout.flush()
    return MISSED if comparison.regressed else MET


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: expected a share from 0 to 100, such as 0.10")
    return value
