"""The log of the agent's service: its standard error, which systemd keeps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator

from tippingpoint.errors import UserError


def log(line: str) -> None:
    """Write a line to the service's log."""
    print(f"tippingpoint agent: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def in_the_log() -> Generator[None]:
    """Write a UserError, such as a full disk, to the log, and go on."""
    try:
        yield
    except UserError as problem:
        log(str(problem))
