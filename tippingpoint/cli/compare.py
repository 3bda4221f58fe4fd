"""`tippingpoint compare`: compare runs with a baseline."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.compare.named import compare_named
from tippingpoint.report import write_comparison
from tippingpoint.util.exit_codes import MET, MISSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="directories of runs, or seed:NAME for published results"
    )
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help="the run or seed:NAME that the others are compared with (the first RUN)",
    )
    parser.add_argument(
        "--format", choices=("html", "md", "json"), default="md", help="the format of the output (md)"
    )
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        default=0.10,
        metavar="SHARE",
        help="a figure is worse when it is worse by more than this share (0.10)",
    )


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
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
