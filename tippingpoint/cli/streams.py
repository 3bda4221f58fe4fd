"""The program's standard streams, which may be closed, full, or have a reader that is gone.

A failure to write to standard output is reported in one line on standard error. If the reader is gone (`| head`), the
command still ends with its own exit code. Output that cannot be written to standard error is dropped.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT = "standard output"


def repair_streams() -> None:
    """Open standard streams that are closed, and report output failures.

    Otherwise a descriptor opened later would take the place of a closed stream, and libuv aborts on that.
    """
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Reading finds the end. Writing to standard output fails; writing to standard error is dropped.
            nowhere = os.open(os.devnull, os.O_WRONLY if stream == "stderr" else os.O_RDONLY)
            if nowhere != number:  # another one is closed too: it comes first
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
    if sys.stdin is None:  # Python's value for a closed descriptor
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _text(_Output(1, STANDARD_OUTPUT, quiet=False), sys.stdout)
    sys.stderr = _text(_Output(2, "standard error", quiet=True), sys.stderr)


class _Output(io.FileIO):
    """A standard stream. After one failed write the rest is dropped, or Python would fail again at exit."""

    def __init__(self, number: int, name: str, *, quiet: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._called = name
        self._quiet = quiet
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int | None:
        size = memoryview(data).nbytes
        if self._failed:
            return size
        try:
            return super().write(data)
        except OSError as problem:
            self._failed = True
            if self._quiet or isinstance(problem, BrokenPipeError):
                return size
            problem.filename = self._called
            raise


def _text(output: _Output, before: TextIO | None) -> io.TextIOWrapper:
    live = output.isatty() or output.fileno() == 2
    encoding = before.encoding if before is not None else None
    return io.TextIOWrapper(io.BufferedWriter(output), encoding, errors="replace", line_buffering=live)
