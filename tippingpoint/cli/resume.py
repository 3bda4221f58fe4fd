"""`tippingpoint resume`: go on with a run that was cut."""

from __future__ import annotations

import argparse
from pathlib import Path

from tippingpoint.cli.running import add_run_options, run_to_report
from tippingpoint.run.resume import take_up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's directory")
    add_run_options(parser)


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    plan, taken_up = take_up(options.run)
    return run_to_report(plan, options, taken_up)
