"""Writing a run's report beside its journals."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.results import RunData


def keep_report(run: RunData, page: str) -> Path | None:
    """Write the report beside the run's journals, else where there is room; None when there is none."""
    for path in (run.directory / "report.html", Path(tempfile.gettempdir()) / f"{run.manifest.id}.html"):
        try:
            replace_file(path, page)
        except OSError:
            continue
        return path
    return None
