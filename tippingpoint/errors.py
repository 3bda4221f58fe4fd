"""The two ways a run can be refused, and the failure of one operation, which is a recorded outcome of the run."""

from __future__ import annotations

from tippingpoint.util.text import one_line

LONGEST_VALUE = 120
LONGEST_TEXT = 2000
"""Characters; what is expected may be a list, and what five endpoints say is as long."""


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
