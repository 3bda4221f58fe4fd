"""`tippingpoint trend`: show where figures of many runs changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tippingpoint.compare.trend.acknowledged import Acknowledged
from tippingpoint.compare.trend.history import runs_below, trend_of
from tippingpoint.errors import UserError
from tippingpoint.report import write_trend
from tippingpoint.rundir.manifest import FILE, Manifest
from tippingpoint.util.exit_codes import MET, MISSED


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    asked: list[Path] = options.runs
    directories = [path for one in asked for path in ([one] if (one / FILE).exists() else runs_below(one))]
    place = asked[0].parent if (asked[0] / FILE).exists() else asked[0]
    acknowledged = Acknowledged.load(place)
    if bool(options.acknowledge) != bool(options.reason):
        missing = "--reason" if options.acknowledge else "--acknowledge"
        raise UserError(missing, "missing", "both --acknowledge RUN and --reason TEXT")
    if options.acknowledge:
        known = [Manifest.load(path).id for path in directories]
        if options.acknowledge not in known:
            raise UserError(
                "--acknowledge", options.acknowledge, f"the id of one of these runs: {', '.join(known[-5:])}"
            )
        acknowledged.runs[options.acknowledge] = options.reason
        acknowledged.save(place)
    trend = trend_of(directories, acknowledged, options.by, _followed)
    sys.stdout.write(write_trend(trend, options.format))
    sys.stdout.flush()
    return MISSED if trend.regressed else MET


def _followed(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the directories, with a progress bar on a terminal."""
    console = Console(stderr=True)
    yield from track(paths, "reading runs", console=console, transient=True, disable=not console.is_terminal)
