"""The two ways a run can be refused, and the failure of one operation, which is a recorded outcome of the run."""

from __future__ import annotations


class UserError(Exception):
    """Input that is refused: one line with the field, the value and what would be accepted (exit code 2)."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field = field
        self.value = value
        self.accepted = accepted
        super().__init__(f"{field}: {_shown(value)}: expected {accepted}")


class TargetError(Exception):
    """A target that cannot be reached or refuses us before any load is put on it (exit code 3).

    `where` is the endpoint or plan field, `problem` what the target or the network said, in one line.
    """

    def __init__(self, where: str, problem: str, accepted: str) -> None:
        self.where = where
        self.problem = problem
        self.accepted = accepted
        super().__init__(f"{where}: {_one_line(problem)}: expected {accepted}")


class OperationFailed(Exception):
    """One operation that the target or the way to it failed; the message is one line, without secrets."""


class Limited(OperationFailed):
    """One operation that a rate limit of the target refused: to be tried again, and no failure of the target."""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(value: object) -> str:
    text = _one_line(value if isinstance(value, str) else repr(value))
    return text if len(text) <= 120 else text[:117] + "..."
