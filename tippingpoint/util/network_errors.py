"""Describes network failures in the same words for every client."""

from __future__ import annotations

import asyncio
import os
import ssl

from tippingpoint.errors import one_line
from tippingpoint.util.certificates import certificate_fault
from tippingpoint.util.open_files import note_exhausted

CLOSED = "connection closed by the server"


def in_words(problem: BaseException) -> str:
    """Return a network failure as one line, in the operating system's words where it has some.

    The address that asyncio adds is left out, because callers put it before the line.
    """
    note_exhausted(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return certificate_fault(problem).said
    if isinstance(problem, ssl.SSLEOFError):
        return CLOSED
    if isinstance(problem, ssl.SSLError):
        return f"TLS: {(problem.reason or str(problem)).replace('_', ' ').lower()}"
    if isinstance(problem, OSError) and problem.errno:
        of_resolver = problem.errno < 0
        return one_line(problem.strerror or "") if of_resolver else os.strerror(problem.errno)
    if isinstance(problem, ConnectionResetError | BrokenPipeError):
        return CLOSED
    if isinstance(problem, TimeoutError | asyncio.CancelledError):
        return "no answer in time"
    return one_line(str(problem)) or type(problem).__name__
