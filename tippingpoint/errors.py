"""The two ways a run can be refused, and the failure of one operation, which is a recorded outcome of the run."""

from __future__ import annotations

LONGEST_VALUE = 120
LONGEST_TEXT = 2000
"""Characters; what is expected may be a list, and what five endpoints say is as long."""


LONGEST_LINE = 400
"""Characters of what the other side says, at most."""


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """A text of the other side as one line of bounded length, in which nothing is that a terminal would obey."""
    words = " ".join(text[: 10 * longest].split())  # so that 50 MB are not looked through
    line = words if words.isprintable() else "".join(map(_shown, words))
    return line if len(line) <= longest else line[: longest - 3] + "..."


def _shown(mark: str) -> str:
    return mark if mark.isprintable() else mark.encode("unicode_escape").decode()


class UserError(Exception):
    """Input that is refused: one line with the field, the value and what would be accepted (exit code 2)."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field = field
        self.value = value
        self.accepted = accepted
        shown = one_line(value if isinstance(value, str) else repr(value), LONGEST_VALUE)
        super().__init__(f"{one_line(field)}: {shown}: expected {one_line(accepted, LONGEST_TEXT)}")


class TargetError(Exception):
    """A target that cannot be reached or refuses us before any load is put on it (exit code 3).

    `where` is the endpoint or plan field, `problem` what the target or the network said, in one line. `refused` says
    that somebody answers and does not let us in as who we are, or is not who we expect: other credentials would help.
    """

    def __init__(self, where: str, problem: str, accepted: str, *, refused: bool = False) -> None:
        self.refused = refused
        self.where = where
        self.problem = problem = problem.removeprefix(f"{where}: ")  # an address stands once
        self.accepted = accepted
        shown = one_line(problem, LONGEST_TEXT)
        super().__init__(
            f"{one_line(where, LONGEST_TEXT)}: {shown}: expected {one_line(accepted, LONGEST_TEXT)}"
        )


class OperationFailed(Exception):
    """One operation that the target or the way to it failed; the message is one line, without secrets."""


class Limited(OperationFailed):
    """One operation that a rate limit of the target refused: to be tried again, and no failure of the target."""


class Refused(Exception):
    """A worker could not begin: the reason in one line and the exit code it asks for."""

    def __init__(self, problem: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(problem)


_FOR_PEOPLE = (UserError, TargetError, OperationFailed, Refused)


def told(problem: BaseException) -> str:
    """As the problem says itself where it was written for people, else with what kind it is of."""
    text = one_line(str(problem), LONGEST_TEXT)
    if isinstance(problem, _FOR_PEOPLE) and text:
        return text
    return f"unexpected {type(problem).__name__}: {text}".rstrip(": ")
