"""`tippingpoint serve`: the page of the runs here, on loopback, with the run in progress live."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path

from tippingpoint.cli.run_names import check_runs
from tippingpoint.collect.page.access import PageAccess
from tippingpoint.collect.page.local import LocalPages
from tippingpoint.collect.page.server import serving
from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import FILE
from tippingpoint.util import timing
from tippingpoint.util.exit_codes import MET

_ADDRESS = "127.0.0.1"
_PORT = 9481
"""The port that is tried first, next to the collector's 9480."""
_UNREAD = 60.0
"""Seconds without a reader after which the page of `run --open` ends."""
_LOOK_S = 0.5


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    runs: Path = options.runs
    if not options.run:  # whose directory `run --open` has yet to make
        check_runs("RUNS", runs)
    with suppress(OSError):
        os.nice(15)  # it must take no CPU from a run in progress
    with tempfile.TemporaryDirectory(prefix="tippingpoint-page-") as answers:
        asyncio.run(_serve(options, Path(answers)))
    return MET


async def _serve(options: argparse.Namespace, answers: Path) -> None:
    token = secrets.token_urlsafe(24)
    pages = LocalPages(options.runs, PageAccess(token), answers)
    place = _listen(options.port)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with serving(pages, place, None):
        path = f"/runs/{options.run}" if options.run else "/"
        address = f"http://{_ADDRESS}:{place.getsockname()[1]}{path}?token={token}"
        print(address, flush=True)
        if options.run and not await _begun(options.runs / options.run, ending):
            return
        if options.open:
            _open(address)
        pages.seen = timing.monotonic()
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), 10 * _LOOK_S)
            if options.until_unread and timing.monotonic() - pages.seen > _UNREAD:
                return


async def _begun(run: Path, ending: asyncio.Event) -> bool:
    """Wait until a run has its directory; returns False if the process that requested it ends first."""
    asker = os.getppid()
    while not await asyncio.to_thread((run / FILE).exists):
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), _LOOK_S)
        if ending.is_set() or os.getppid() != asker:
            return False
    return True


def _listen(port: int | None) -> socket.socket:
    """Return a socket on loopback: on the port asked for, else on the usual one or any that is free."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for tried in (_PORT, 0) if port is None else (port,):
        with suppress(OSError):
            place.bind((_ADDRESS, tried))
            return place
    place.close()
    raise UserError("--port", port, "a free port")


def _open(address: str) -> None:
    """Open a browser where there is a desktop. A text browser would take the terminal away from the run."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)
