"""`tippingpoint import`: turn results of other tools into runs."""

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
    """Add the arguments and options of the command."""
    parser.add_argument(
        "log", type=Path, metavar="FILE", help="a log of the lease tool, or a Rally task's result in JSON"
    )
    parser.add_argument(
        "--stage", dest="stages", metavar="SIZE@LINE", action="append", default=[],
        help="SIZE leases were held from this line of the log on; SIZE@LINE:storm is a restart storm",
    )  # fmt: skip
    parser.add_argument(
        "--sidecar", type=Path, metavar="FILE", help="a file with the stages of the log (LOG.stages.yaml)"
    )
    parser.add_argument(
        "--title", metavar="TEXT", help="the run's name in reports and comparisons (the file's name)"
    )
    parser.add_argument(
        "--out", type=Path, default=RUNS, metavar="DIR", help="the directory in which runs are kept (./runs)"
    )


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    if holds_json(options.log):
        for option, given in (("--stage", options.stages), ("--sidecar", options.sidecar)):
            if given:
                raise UserError(option, given, "none for a result of Rally, which names its own stages")
        for directory in import_rally(options.log, options.out, options.title):
            print(directory)
        return MET
    print(import_log(options.log, options.out, options.stages, options.sidecar, title=options.title))
    return MET
