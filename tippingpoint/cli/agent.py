"""`tippingpoint agent`: play a unit's part of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from tippingpoint.agent.program import run_agent
from tippingpoint.util.exit_codes import MET


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        metavar="DIR",
        help="the directory in which the agent keeps its state",
    )
    parser.add_argument(
        "--socket", type=Path, required=True, metavar="PATH", help="the Unix socket on which the charm asks"
    )
    parser.add_argument(
        "--wake",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file that is made or touched when there is news for the charm",
    )
    parser.add_argument("--unit", default="", metavar="NAME", help="the unit that the agent serves")
    parser.add_argument(
        "--metrics",
        metavar="ADDRESS:PORT",
        help="the address at which a Prometheus scrapes the agent's metrics",
    )


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    run_agent(options.state, options.socket, options.wake, options.unit, options.metrics)
    return MET
