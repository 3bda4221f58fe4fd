"""Exceptions: a run that is refused, and an operation that failed, which is a recorded outcome of a run."""

from __future__ import annotations

import re

LONGEST_VALUE = 120
"""The most characters of a refused value that a message quotes."""
LONGEST_TEXT = 2000
"""The most characters of what would be accepted, or of a problem: a list, or the answers of five endpoints."""


LONGEST_LINE = 400
"""The most characters of a text from the other side."""
_LOGIN = re.compile(r"(?<=://)(?!USER@[^\s@]*(?!\S))\S*@")  # an example of ours is none


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text from the other side as one line of bounded length, without control characters and logins of
    URLs."""
    words = without_logins(" ".join(text[: 10 * longest].split()))  # bounded, as the text may be 50 MB
    line = words if words.isprintable() else "".join(map(_shown, words))
    return line if len(line) <= longest else line[: longest - 3] + "..."


def without_logins(text: str) -> str:
    """Return a text without the users and passwords of URLs in it."""
    return _LOGIN.sub("...@", text) if "://" in text else text


def _shown(mark: str) -> str:
    return mark if mark.isprintable() else mark.encode("unicode_escape").decode()


class UserError(Exception):
    """Raised when input is refused: one line with the field, the value and what would be accepted (exit code 2)."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field = field
        self.value = value
        self.accepted = accepted
        shown = one_line(value if isinstance(value, str) else repr(value), LONGEST_VALUE)
        super().__init__(f"{one_line(field)}: {shown}: expected {one_line(accepted, LONGEST_TEXT)}")


class TargetError(Exception):
    """Raised when a target cannot be reached, or refuses us before any load is put on it (exit code 3).

    `where` is the endpoint or plan field. `problem` is what the target or the network said, in one line. `refused`
    means that a server answered and rejected our credentials, or is not the server we expect: other credentials
    would help.
    """

    def __init__(self, where: str, problem: str, accepted: str, *, refused: bool = False) -> None:
        self.refused = refused
        self.where = where
        self.problem = problem = problem.removeprefix(f"{where}: ")  # name an address only once
        self.accepted = accepted
        shown = one_line(problem, LONGEST_TEXT)
        super().__init__(
            f"{one_line(where, LONGEST_TEXT)}: {shown}: expected {one_line(accepted, LONGEST_TEXT)}"
        )


class OperationFailed(Exception):
    """Raised when the target, or the network, failed one operation; the message is one line, without secrets."""


class Limited(OperationFailed):
    """Raised when a rate limit of the target refused an operation: it is retried and is no failure of the target."""


class Refused(Exception):
    """Raised when a worker cannot start: the reason in one line, and the program's exit code."""

    def __init__(self, problem: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(problem)


_FOR_PEOPLE = (UserError, TargetError, OperationFailed, Refused)


def describe(problem: BaseException) -> str:
    """Return the text of an exception as one line; an exception not meant for people is prefixed with its type."""
    text = one_line(str(problem), LONGEST_TEXT)
    if isinstance(problem, _FOR_PEOPLE) and text:
        return text
    return f"unexpected {type(problem).__name__}: {text}".rstrip(": ")
