"""The command line: finds the command, and turns every error into one line and an exit code.

A command's module is imported when it is carried out: each brings libraries of its own. A help text or a refused option
needs none of them.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, cast

from tippingpoint import __version__
from tippingpoint.cli.arguments import COMMANDS
from tippingpoint.errors import Refused, TargetError, UserError, without_logins
from tippingpoint.util.exit_codes import BAD_INPUT, INTERRUPTED, MET, TARGET_FAILED
from tippingpoint.util.importing import importing
from tippingpoint.util.process import check_limits, lack_of
from tippingpoint.util.secret_words import without_secrets


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line, as for every other refusal."""
        if message.startswith("unrecognized arguments: "):  # such as --password and what follows it
            message = without_secrets(message)
        self.exit(BAD_INPUT, f"{self.prog}: {without_logins(message)}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 met, 1 missed, 2 bad input, 3 target failed, 4 verdict withheld."""
    _survive_narrow_encodings()
    asked = sys.argv[1:] if arguments is None else [*arguments]
    command = next((word for word in asked if not word.startswith("-")), "")
    options = build_parser([command]).parse_args(asked)
    code: int
    try:
        code = _do(options)
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
    for name, about in COMMANDS.items():
        command = parsers.add_parser(name, help=about.help, description=about.help)
        command.set_defaults(command=name)
        if name in commands:
            about.add_arguments(command)
    return parser


def _do(options: argparse.Namespace) -> int:
    """Carry out what was asked, in the command's module; returns the exit code."""
    name = "import_" if options.command == "import" else options.command
    check_limits()
    try:
        with importing():
            module = importlib.import_module(f"tippingpoint.cli.{name}")
        return cast(int, module.do(options))
    except (MemoryError, OSError, ImportError, RuntimeError) as problem:
        lacking = lack_of(problem)
        if lacking is None:
            raise
        raise lacking from None


def _survive_narrow_encodings() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
