"""`tippingpoint agent`: play a unit's part of runs."""

from __future__ import annotations

import argparse

from tippingpoint.agent.program import run_agent
from tippingpoint.util.exit_codes import MET


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    run_agent(options.state, options.socket, options.wake, options.unit, options.metrics)
    return MET
