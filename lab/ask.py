"""Sends a request to the control socket of a running lab (control.py): `python -m lab.ask SOCKET JSON`."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from lab.control import LabError
from lab.patience import PATIENCE_S


def ask(control: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request to a lab's control socket and return the answer. Raises LabError without one."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                return json.loads(lines.readline())
        except (OSError, ValueError) as problem:
            raise LabError(f"{control}: {problem}", "the control socket of a running lab") from None


def main(arguments: list[str]) -> int:
    """Ask and print the answer. Return the exit code: 2 for a refusal, 3 without a lab."""
    if len(arguments) != 2:
        print(f"{' '.join(arguments) or 'nothing'}: expected a control socket and JSON", file=sys.stderr)
        return 2
    control, request = arguments
    try:
        fields = json.loads(request)
    except ValueError:
        print(f'{request}: not JSON: expected an object such as {{"do": "members"}}', file=sys.stderr)
        return 2
    try:
        answer = ask(Path(control), fields)
    except LabError as problem:
        print(problem, file=sys.stderr)
        return 3
    if "error" in answer:
        print(f"{answer['error']}: expected {answer['expected']}", file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
