"""Answers the fencing device of a lab's nodes (fence_lab), on a socket that every node has at /run/fence."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

Answer = Callable[[str, str], bool]
"""Does `off` or `reboot` to a node, and tells whether the node was dead."""


class FenceServer:
    """Serves the fencing device from a thread for as long as the context lasts."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._server = _Server(str(path), _Request)
        self._server.daemon_threads = True
        self._server.answer = answer

    def __enter__(self) -> FenceServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingUnixStreamServer):
    answer: Answer


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = json.loads(self.rfile.readline(4096) or b"{}")
        done = cast(_Server, self.server).answer(asked.get("action", ""), asked.get("node", ""))
        with contextlib.suppress(OSError):  # the node that asked may be dead by now
            self.wfile.write(json.dumps({"ok": done}).encode() + b"\n")
