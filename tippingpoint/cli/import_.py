"""`tippingpoint import`: turn results of other tools into runs."""

from __future__ import annotations

import argparse

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.rally import import_rally
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.inputs import Input


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    with Input("log", options.log) as file:
        if file.is_json():
            for option, given in (("--stage", options.stages), ("--sidecar", options.sidecar)):
                if given:
                    raise UserError(option, given, "none for a result of Rally, which names its own stages")
            made = import_rally(file, options.out, options.title)
        else:
            made = [import_log(file, options.out, options.stages, options.sidecar, title=options.title)]
    for directory in made:
        print(directory)
    return MET
