"""`tippingpoint compare`: compare runs with a baseline."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.compare.named import compare_named
from tippingpoint.report import write_comparison
from tippingpoint.util.exit_codes import MET, MISSED


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    names: list[str] = options.runs
    if options.baseline is not None:
        names = [options.baseline, *(name for name in names if name != options.baseline)]
    comparison = compare_named(names, options.tolerance)
    sys.stdout.write(write_comparison(comparison, options.format))
    sys.stdout.flush()
    return MISSED if comparison.regressed else MET
