"""The trend of the stored runs: which runs it includes, and what is acknowledged."""

from __future__ import annotations

from tippingpoint.collect.runs import Runs, StoredRun
from tippingpoint.collect.sandbox import question
from tippingpoint.compare.trend.acknowledged import Acknowledged

FOLLOWED = 60
"""The most runs in a trend, the newest: an action waits 45 s for it."""


def followed(runs: Runs) -> list[StoredRun]:
    """Return the runs of the trend, the newest first."""
    return [run for run in runs.newest_first() if run.reported][:FOLLOWED]


def trend_question(runs: Runs, form: str, by: str) -> bytes:
    """Return the question for the engine; raises UserError if the file of what is acknowledged is damaged."""
    return question("trend", followed(runs), **asked(runs, form, by))


def asked(runs: Runs, form: str, by: str) -> dict[str, object]:
    """Return the fields of the question for the engine, besides the runs; raises UserError as trend_question does."""
    return {"format": form, "by": by, "acknowledged": Acknowledged.load(runs.directory).runs}
