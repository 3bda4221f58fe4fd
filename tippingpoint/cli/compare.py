"""`tippingpoint compare`: compare runs with a baseline."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.compare.comparison import Comparison
from tippingpoint.compare.named import compare_named, compare_repeats
from tippingpoint.errors import UserError
from tippingpoint.report import write_comparison
from tippingpoint.util.exit_codes import MET, MISSED


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    names: list[str] = options.runs
    if options.others or options.control:
        if options.baseline is not None:
            raise UserError(
                "--baseline", options.baseline, "none with --with: the first runs are the baseline"
            )
        return _write(compare_repeats([names, *options.others], options.control, options.tolerance), options)
    if options.baseline is not None:
        names = [options.baseline, *(name for name in names if name != options.baseline)]
    return _write(compare_named(names, options.tolerance), options)


def _write(comparison: Comparison, options: argparse.Namespace) -> int:
    sys.stdout.write(write_comparison(comparison, options.format))
    sys.stdout.flush()
    return MISSED if comparison.regressed else MET
