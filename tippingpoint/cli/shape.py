"""`tippingpoint shape`: print the shapes of a site's own Juju models, for a plan of the workload operate."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.operate import ModelShape
from tippingpoint.targets.juju.shapes import shape_of
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.strict_yaml import dump_yaml


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises UserError for a file that is not a model's status."""
    shapes = [_read(file) for file in options.status]
    document = [shape.model_dump(mode="json", exclude_defaults=True) for shape in shapes]
    sys.stdout.write(dump_yaml({"shapes": document}, flow=None))
    return MET


def _read(file: Path) -> ModelShape:
    accepted = "what `juju status --format json` prints"
    try:
        status = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8"))
    except ValueError:  # no JSON, or not even text
        raise UserError("STATUS", str(file), accepted) from None
    except OSError as problem:
        raise UserError("STATUS", str(file), f"a file with {accepted} ({problem.strerror})") from None
    return shape_of(status, str(file))
