"""The command line: finds the command, and turns every error into one line and an exit code.

A command's module is imported when it is asked for: each brings libraries of its own.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from tippingpoint import __version__
from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.util.exit_codes import BAD_INPUT, INTERRUPTED, MET, TARGET_FAILED

COMMANDS = {
    "run": "Run a plan: a file, or the name of a shipped plan.",
    "resume": "Go on with a spawn run that was cut, from the stage it was in.",
    "report": "Print a run's report.",
    "collect": "Add the resource use of a run's target to its directory and report, from a Prometheus.",
    "compare": "Compare runs with a baseline; exit 1 when one is worse.",
    "plans": "List the shipped plans.",
    "baselines": "List the published results that runs can be compared with.",
    "import": "Turn a log of Juju's lease tool, or a Rally task's result in JSON, into a run.",
    "agent": "Play a unit's part of runs, as the service that charms start.",
    "clean": "Remove from the target everything that a run left there.",
}
"""The help of each command. Its module has the same name, with an underscore where Python reserves the word."""


class Command(Protocol):
    """The module of a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments and options of the command."""
        ...

    def do(self, options: argparse.Namespace) -> int:
        """Carry it out; returns the exit code. Raises any error of tippingpoint.errors."""
        ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line, as for every other refusal."""
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 met, 1 missed, 2 bad input, 3 target failed, 4 verdict withheld."""
    _survive_narrow_encodings()
    asked = sys.argv[1:] if arguments is None else [*arguments]
    command = next((word for word in asked if not word.startswith("-")), "")
    options = build_parser([command]).parse_args(asked)
    code: int
    try:
        code = _module(options.command).do(options)
        sys.stdout.flush()
    except (UserError, TargetError, Refused) as refused:
        print(f"tippingpoint: {refused}", file=sys.stderr)
        if isinstance(refused, Refused):
            code = refused.exit_code
        else:
            code = BAD_INPUT if isinstance(refused, UserError) else TARGET_FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output is gone
        code = MET
    except OSError as problem:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"tippingpoint: {problem.filename or 'standard output'}: {problem.strerror}", file=sys.stderr)
        code = BAD_INPUT
    sys.exit(code)


def build_parser(commands: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """All commands, and the arguments and options of those named."""
    parser = _Parser(prog="tippingpoint", description="Finds where a cloud's control plane tips over.")
    parser.add_argument("--version", action="version", version=f"tippingpoint {__version__}")
    parsers = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, text in COMMANDS.items():
        command = parsers.add_parser(name, help=text, description=text)
        command.set_defaults(command=name)
        if name in commands:
            _module(name).add_arguments(command)
    return parser


def _module(command: str) -> Command:
    name = "import_" if command == "import" else command
    return cast(Command, importlib.import_module(f"tippingpoint.cli.{name}"))


def _survive_narrow_encodings() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
