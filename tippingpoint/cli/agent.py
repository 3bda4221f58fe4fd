"""`tippingpoint agent`: a unit's part of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from tippingpoint.agent.program import run_agent
from tippingpoint.util.exit_codes import MET


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments and options."""
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="where all it knows is kept")
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH", help="where the charm asks")
    parser.add_argument(
        "--wake",
        type=Path,
        required=True,
        metavar="FILE",
        help="made or touched when there is news for the charm",
    )
    parser.add_argument("--unit", default="", metavar="NAME", help="whose agent it is")
    parser.add_argument("--metrics", metavar="ADDRESS:PORT", help="where a Prometheus finds its figures")


def do(options: argparse.Namespace) -> int:
    """Do it; returns the exit code."""
    run_agent(options.state, options.socket, options.wake, options.unit, options.metrics)
    return MET
