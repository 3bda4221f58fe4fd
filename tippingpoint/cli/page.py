"""Writing a run's report beside its journals."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.held import HeldDirectory
from tippingpoint.rundir.results import RunData

FILE = "report.html"
"""The name of a report in its run's directory."""


def keep_report(run: RunData, page: str, held: HeldDirectory) -> Path | None:
    """Write the report beside the run's journals, in its directory as it is `held`, or else as a temporary file;
    returns its path, or None if there is no room."""
    with suppress(OSError):
        replace_file(held.inside / FILE, page)
        return run.directory / FILE
    with suppress(OSError):
        return _elsewhere(f"{run.manifest.id}-", page)
    return None


def _elsewhere(prefix: str, page: str) -> Path:
    """Write the report to a new file: other users may write to that directory, so an existing file is not trusted."""
    file, name = tempfile.mkstemp(".html", prefix)
    try:
        with open(file, "w", encoding="utf-8") as opened:
            opened.write(page)
    except OSError:
        os.unlink(name)
        raise
    return Path(name)
