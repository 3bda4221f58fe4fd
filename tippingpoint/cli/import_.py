"""`tippingpoint import`: results of other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from tippingpoint.cli.running import RUNS
from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.rally import import_rally
from tippingpoint.importers.rally_results import holds_json
from tippingpoint.util.exit_codes import MET


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments and options."""
    parser.add_argument("log", type=Path, metavar="FILE", help="the log, or the result")
    parser.add_argument(
        "--stage", dest="stages", metavar="SIZE@LINE", action="append", default=[],
        help="from this line on, SIZE leases were held (SIZE@LINE:storm for a restart storm)",
    )  # fmt: skip
    parser.add_argument("--sidecar", type=Path, metavar="FILE", help="stages in a file (LOG.stages.yaml)")
    parser.add_argument(
        "--title", metavar="TEXT", help="what reports and comparisons call it (the file's name)"
    )
    parser.add_argument("--out", type=Path, default=RUNS, metavar="DIR", help="where runs are kept (./runs)")


def do(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    if holds_json(options.log):
        for option, given in (("--stage", options.stages), ("--sidecar", options.sidecar)):
            if given:
                raise UserError(option, given, "none for a result of Rally, which says itself what it ran")
        for directory in import_rally(options.log, options.out, options.title):
            print(directory)
        return MET
    print(import_log(options.log, options.out, options.stages, options.sidecar, title=options.title))
    return MET
