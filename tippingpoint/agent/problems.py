"""What went wrong, in one line for people."""

from __future__ import annotations

from tippingpoint.errors import LONGEST_TEXT, OperationFailed, TargetError, UserError
from tippingpoint.run.worker_process import Refused
from tippingpoint.util.text import one_line

_FOR_PEOPLE = (UserError, TargetError, OperationFailed, Refused)


def told(problem: BaseException) -> str:
    """As the problem says itself where it was written for people, else with what kind it is of."""
    text = one_line(str(problem), LONGEST_TEXT)
    if isinstance(problem, _FOR_PEOPLE) and text:
        return text
    return f"unexpected {type(problem).__name__}: {text}".rstrip(": ")
