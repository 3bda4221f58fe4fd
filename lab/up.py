"""Runs a lab as a program: prints how to use it, and stops it when asked to."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from lab import ports
from lab.control import LabError
from lab.watched import Watchable, watched
from tippingpoint.errors import UserError
from tippingpoint.plan.defaults import FILE


class Lab(Protocol):
    """A lab that can describe itself."""

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs."""
        ...

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        ...


L = TypeVar("L", bound=Lab)

_KINDS = {"incus": "lxd"}
"""The kind of target of a lab, where it is not its name."""
_HOW_TO_RUN = f"in this directory, plans for it need no --set while it runs: {FILE} has its addresses"


def serve(
    make: Callable[[], AbstractContextManager[L]],
    how_to: Callable[[L], str],
    options: argparse.Namespace,
    name: str,
    settings: Callable[[L], Sequence[str]] | None = None,
) -> int:
    """Run a lab, print its addresses, and stop it on SIGINT, SIGTERM or the end of standard input.

    `options` are those of `arguments.up_parser`: with `how_to`, instructions are printed, else JSON. Ports are those of
    the last lab of this `name` where they are free. `settings` are those for a plan that need no environment, where the
    lab's own do. Returns the exit code.
    """
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: asked.set())
    ports.prefer(name)
    try:
        with (
            make() as lab,
            _scraped(lab, getattr(options, "prometheus", False)) as prometheus,
            contextlib.ExitStack() as stack,
        ):
            if options.how_to:
                kept = lab.settings() if settings is None else settings(lab)
                stack.enter_context(_remembered(_KINDS.get(name, name), kept, prometheus))
                words = how_to(lab) + (_how_to_collect(prometheus) if prometheus else "")
                print(f"{words}\n{_HOW_TO_RUN}", flush=True)
            else:
                print(
                    json.dumps(lab.describe() | ({"prometheus": prometheus} if prometheus else {})),
                    flush=True,
                )
            if _input_can_end():
                threading.Thread(target=_wait_for_end_of_input, args=(asked,), daemon=True).start()
            asked.wait()
    except (LabError, UserError) as problem:
        print(problem, file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):  # nobody may be reading any more
        print("the lab has stopped, and its data is removed", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _scraped(lab: Lab, wanted: bool) -> Generator[str]:
    """Yield the URL of a Prometheus that scrapes the lab; empty if none is wanted."""
    if not wanted:
        yield ""
        return
    with watched(cast(Watchable, lab)) as prometheus:
        yield prometheus.url


@contextlib.contextmanager
def _remembered(kind: str, settings: Sequence[str], prometheus: str) -> Generator[None]:
    """Keep the lab's addresses where `tippingpoint run` looks for them: in the directory in which the lab began."""
    file = Path(FILE)
    lines = [f"# the lab of process {os.getpid()}", f"target.kind={kind}", *settings]
    text = "\n".join([*lines, *([f"prometheus={prometheus}"] if prometheus else []), ""])
    try:
        new = file.with_name(f"{FILE}.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as problem:
        print(f"{file.absolute()} is not written: {problem.strerror}", file=sys.stderr)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if file.read_text(encoding="utf-8") == text:  # and not that of a lab that was started later
                file.unlink()


def _how_to_collect(prometheus: str) -> str:
    return (
        f"\nPrometheus scrapes it every second: {prometheus}\n"
        f"add the target's CPU, memory, disks and network to a run's report:\n"
        f"  .venv/bin/tippingpoint collect runs/RUN --prometheus {prometheus}"
    )


def _input_can_end() -> bool:
    """Return whether standard input can end later. /dev/null or a file is at its end at once."""
    mode = os.fstat(0).st_mode
    return os.isatty(0) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _wait_for_end_of_input(asked: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    asked.set()
