"""`tippingpoint resume`: continue a run that was cut."""

from __future__ import annotations

import argparse

from tippingpoint.cli.running import run_to_report
from tippingpoint.play.resume import take_up


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    plan, taken_up = take_up(options.run)
    return run_to_report(plan, options, taken_up)
