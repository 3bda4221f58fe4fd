"""`tippingpoint import`: turn results of other tools into runs."""

from __future__ import annotations

import argparse

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.rally import import_rally
from tippingpoint.importers.rally_results import holds_json
from tippingpoint.util.exit_codes import MET


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
