"""The tables of docs/reference/cli.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from scripts._reference.markdown import code, sentence, table
from tippingpoint.cli.program import build_parser


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments and options of one command, but for --help and hidden ones."""
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS
        if not hidden and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield action


def commands() -> str:
    """A section for each command."""
    parts: list[str] = []
    for name, parser in subcommands(build_parser()).items():
        parts += [f"## {name}", "", sentence(parser.description or ""), "", f"    {_usage(parser)}", ""]
        rows = [[_shown(action), _meaning(action)] for action in arguments(parser)]
        if rows:
            parts += [table(["argument or option", "meaning"], rows), ""]
    return "\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    words = [parser.prog]
    options = [action for action in arguments(parser) if action.option_strings]
    words += [f"{action.option_strings[0]} {action.metavar}" for action in options if action.required]
    if any(not action.required for action in options):
        words.append("[OPTION...]")
    for action in arguments(parser):
        if not action.option_strings:
            name = str(action.metavar or action.dest.upper())
            words.append(
                {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)
            )
    return " ".join(words)


def _shown(action: argparse.Action) -> str:
    if not action.option_strings:
        return code(action.metavar or action.dest.upper())
    value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ()))}"
    return code(f"{', '.join(action.option_strings)}{value}")


def _meaning(action: argparse.Action) -> str:
    choices = f" One of {', '.join(map(code, action.choices))}." if action.choices else ""
    needed = " Required." if action.required and action.option_strings else ""
    return sentence(action.help or "") + choices + needed


PARTS: dict[str, Callable[[], str]] = {"commands": commands}
