"""Imports the program once, and forks a process of it each time that it is asked to. It has one thread, and never ran
any of what it imported."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from typing import Any, NoReturn

import tippingpoint
from tippingpoint.__main__ import main

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # as the program's entry point has it, before numpy is imported


def serve(asking: socket.socket) -> None:
    """Fork for whoever asks, until nobody does any more."""
    for module in pkgutil.walk_packages(tippingpoint.__path__, "tippingpoint."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        length, streams, _, _ = socket.recv_fds(asking, 4, 3)
        if not length:
            return
        asked = json.loads(asking.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        told, tells = os.pipe()
        between = os.fork()
        if not between:
            born = os.fork()
            if not born:
                asking.detach()  # or its number, which is another file's by then, would be closed at the end
                _be(asked, streams)
            os.write(tells, born.to_bytes(4, "big"))
            os._exit(0)  # which leaves the new process to the tests'
        os.waitpid(between, 0)
        asking.sendall(os.read(told, 4))
        for number in (told, tells, *streams):
            os.close(number)


def _be(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Become the program, and end as it does."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(asked["at"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["args"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
    sys.exit()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
