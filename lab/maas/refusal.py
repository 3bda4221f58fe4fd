"""What a region refuses, with the status and the text of a real one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


class Refused(Exception):
    """An answer that is no success. `kind` is its content type.

    A state that is in the way is 409 (NodeStateViolation of src/maasserver/exceptions.py), no rack controller, no
    power and no room on a VM host are 503 (NoConnectionsAvailable, PowerProblem, PodProblem), and a form is 400.
    """

    def __init__(
        self, status: int, text: str, kind: str = "text/plain", headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.text = text
        self.kind = kind
        self.headers = dict(headers or {})
        super().__init__(text)


def invalid(field: str, *problems: str) -> Refused:
    """Return the refusal of a form: 400, and a JSON object with the field's problems."""
    return Refused(400, json.dumps({field: list(problems)}), "application/json")


def missing(fields: Sequence[str]) -> Refused:
    """Return the refusal of a form without some fields."""
    problems = {field: ["This field is required."] for field in fields}
    return Refused(400, json.dumps(problems), "application/json")


def unconnected(racks: Sequence[str]) -> Refused:
    """Return the refusal of a call that none of these rack controllers can be asked for.

    It is NoConnectionsAvailable of src/maasserver/rpc/regionservice.py, answered by src/maasserver/middleware.py.
    """
    text = f"Unable to connect to any rack controller {','.join(racks)}; no connections available."
    return Refused(503, text, headers={"Retry-After": "10"})


def not_found(what: str) -> Refused:
    """Return the refusal of an id that nothing has."""
    return Refused(404, f"No {what} matches the given query.")


def no_choice(field: str, value: str, what: str, choices: Sequence[str]) -> Refused:
    """Return the refusal of a value that is none of a field's choices."""
    names = ", ".join(f"'{choice}'" for choice in choices)
    return invalid(field, f"'{value}' is not a valid {what}.  It should be one of: {names}.")
