"""`tippingpoint completion`: print a script with which a shell completes the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import cast

import shtab

from tippingpoint.cli.arguments import COMMANDS
from tippingpoint.cli.program import build_parser
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.util.exit_codes import MET


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    parser = build_parser(tuple(COMMANDS))
    words = " ".join(shipped_plans())
    # Shells run these at each completion, because new plans or runs may exist by then.
    completed = {
        "PLAN": shtab.cmd(f"echo {words}; ls -1 | grep '[.]yaml'"),
        "RUN": shtab.cmd("echo last; ls -1 runs 2>/dev/null"),
        "FILE": shtab.FILE,
        "DIR": shtab.DIRECTORY,
    }
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar in completed:
            action.complete = completed[action.metavar]  # pyright: ignore[reportAttributeAccessIssue]
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return MET


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a parser and of its commands."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        yield action
        choices = cast(object, action.choices)
        if isinstance(choices, Mapping):  # commands by name; an option has a list of choices
            for command in cast("Mapping[str, argparse.ArgumentParser]", choices).values():
                yield from _actions(command)
