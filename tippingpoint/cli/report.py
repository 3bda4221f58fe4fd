"""`tippingpoint report`: print a run's report."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.named import load_named
from tippingpoint.errors import UserError
from tippingpoint.report import write_report
from tippingpoint.util.exit_codes import MET


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    run = load_named(options.run)
    if run is None:
        raise UserError(
            "run", options.run, "a run: this baseline has figures only (tippingpoint baselines NAME)"
        )
    sys.stdout.write(write_report(analyse(run), options.format))
    sys.stdout.flush()
    return MET
