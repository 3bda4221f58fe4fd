"""Sends the lab's own requests to one LXD daemon over its unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from lab.control import LabError


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("lxd", timeout=timeout)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: Path, method: str, what: str, body: Any = None, timeout: float = 60.0) -> Any:
    """Return the metadata of an answer, or of an operation once it has succeeded.

    Raises LabError if it failed, or without an answer within `timeout` seconds.
    """
    connection = _Connection(path, timeout)
    try:
        content = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
        connection.request(method, what, content)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise LabError(f"{method} {what}: {problem or type(problem).__name__}", "an answer of LXD") from None
    finally:
        connection.close()
    if answer["type"] == "async":
        operation = ask(path, "GET", f"{answer['operation']}/wait", timeout=timeout)
        if operation["err"]:
            raise LabError(f"{method} {what}: {operation['err']}", "success")
        return operation["metadata"]
    if answer["type"] == "error":
        raise LabError(f"{method} {what}: {answer['error']}", "success")
    return answer["metadata"]
