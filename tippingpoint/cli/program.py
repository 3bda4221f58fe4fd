"""The command line: finds the command, and turns every error into one line and an exit code.

A command's module is imported only when the command runs, because it imports libraries that a help text or a refused
option does not need.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import NoReturn, cast

from tippingpoint import __version__
from tippingpoint.cli.arguments import COMMANDS
from tippingpoint.cli.version import ShowVersion
from tippingpoint.errors import Refused, TargetError, UserError, describe, without_logins
from tippingpoint.util.exit_codes import BAD_INPUT, CRASHED, INTERRUPTED, MET, TARGET_FAILED
from tippingpoint.util.importing import importing
from tippingpoint.util.process import check_limits, lack_of
from tippingpoint.util.secret_words import without_secrets
from tippingpoint.util.text import nearest

_CHOICE = re.compile(
    r"(?P<argument>.+?): invalid choice: '(?P<value>.*)' \(choose from (?P<known>.*)\)", re.DOTALL
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line, as for every other refusal: the argument, its value, and what would be accepted."""
        message = message.removeprefix("argument ")
        choice = _CHOICE.fullmatch(message)
        if choice is not None:
            known = re.findall("'([^']*)'", choice["known"])
            message = f"{choice['argument']}: {choice['value']}: expected one of {', '.join(known)}"
            message += nearest(choice["value"], known)
        self.exit(BAD_INPUT, f"{self.prog}: {without_logins(message)}\n")

    def refuse(self, command: str, unknown: Sequence[str]) -> NoReturn:
        """Refuse arguments that the command does not know."""
        lone = _Parser(prog=f"{self.prog} {command}")
        COMMANDS[command].add_arguments(lone)
        options = [
            name
            for action in lone._actions  # pyright: ignore[reportPrivateUsage]
            if action.help != argparse.SUPPRESS
            for name in action.option_strings
            if name.startswith("--")
        ]
        shown = without_secrets(f"unknown: {' '.join(unknown)}")  # such as --password and what follows it
        if unknown[0].startswith("-"):
            near = nearest(unknown[0].partition("=")[0], options)
            lone.error(f"{shown}: expected one of {', '.join(options)}{near}")
        lone.error(f"{shown}: expected no more arguments (see {lone.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 met, 1 missed, 2 bad input, 3 target failed, 4 verdict withheld, 70 crashed."""
    _survive_narrow_encodings()
    sys.exit(_carry_out(sys.argv[1:] if arguments is None else [*arguments]))


def _carry_out(asked: Sequence[str]) -> int:
    """Return the exit code of a command, after its output has been written."""
    command = next((word for word in asked if not word.startswith("-")), "")
    try:
        try:
            parser = build_parser([command])
            options, unknown = parser.parse_known_args(asked or ["--help"])
            if unknown:
                parser.refuse(options.command, unknown)
            code = _do(options)
        except SystemExit as ended:  # argparse has shown a help text, or refused an option
            code = ended.code if isinstance(ended.code, int) else MET
        sys.stdout.flush()
    except (UserError, TargetError, Refused) as refused:
        _say(str(refused))
        if isinstance(refused, Refused):
            return refused.exit_code
        return BAD_INPUT if isinstance(refused, UserError) else TARGET_FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as problem:
        _say(f"{problem.filename}: {problem.strerror}" if problem.filename else describe(problem))
        return BAD_INPUT
    except Exception as defect:
        _say(_kept(defect))
        return CRASHED
    return code


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"tippingpoint: {line}", file=sys.stderr)


def _kept(defect: Exception) -> str:
    """Save the traceback of a defect in a file that only its owner can read, and return the message about it."""
    line = f"{describe(defect)}: this is a defect of tippingpoint"
    try:
        descriptor, path = tempfile.mkstemp(prefix="tippingpoint-crash-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"tippingpoint {__version__}, Python {sys.version}\n\n")
            traceback.print_exception(defect, file=file)
    except OSError as problem:
        return f"{line}; there is no room for its traceback ({problem.strerror})"
    return f"{line}; its traceback is in {path}"


def build_parser(commands: Sequence[str] = tuple(COMMANDS)) -> _Parser:
    """Return a parser that knows all commands, and the arguments and options of those named."""
    parser = _Parser(prog="tippingpoint", description="Finds where a cloud's control plane tips over.")
    parser.add_argument("--version", action=ShowVersion)
    parsers = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for name, about in COMMANDS.items():
        command = parsers.add_parser(name, help=about.help, description=about.help)
        command.set_defaults(command=name)
        if name in commands:
            about.add_arguments(command)
    return parser


def _do(options: argparse.Namespace) -> int:
    """Run the requested command in its module; returns the exit code."""
    name = "import_" if options.command == "import" else options.command.replace("-", "_")
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
