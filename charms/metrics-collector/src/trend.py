"""The trend of the runs that are kept, which the engine makes when a run was judged, and its alerts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tippingpoint.collect import sandbox
from tippingpoint.collect.followed import followed, trend_question
from tippingpoint.collect.runs import Runs
from tippingpoint.compare.trend.acknowledged import Acknowledged
from tippingpoint.monitoring.scrape.jobs import Found, Rules

_FILE = "trend.json"
_WITHIN = 400.0
"""Seconds that a trend may take to be made; then it is started again."""
_LARGEST = 16 << 20
"""Bytes."""


class Trends:
    """The trend of the runs in a unit's state."""

    def __init__(self, state: Path, runs: Runs) -> None:
        self._runs = runs
        self._file = state / _FILE

    def write(self, path: Path, form: str, by: str) -> bool:
        """Have the trend written to a file; returns True for a regression. Raises UserError as sandbox.write does."""
        return sandbox.write(path, trend_question(self._runs, form, by))

    def acknowledge(self, run: str, reason: str) -> None:
        """Accept the changes that begin with a run. The trend is made again."""
        acknowledged = Acknowledged.load(self._runs.directory)
        acknowledged.runs[run] = reason
        acknowledged.save(self._runs.directory)
        self._file.unlink(missing_ok=True)

    def follow(self) -> None:
        """Start to make the trend again, if a run was judged since it was made."""
        judged = [_changed(run.verdict_file) for run in followed(self._runs) if run.verdict is not None]
        made = _changed(self._file)
        is_being_made = self._read() is None and time.time() - made < _WITHIN
        if judged and not is_being_made and (made <= max(judged) or self._read() is None):
            sandbox.begin(self._file, trend_question(self._runs, "json", "date"))

    def alerts(self) -> Found:
        """Return a rule for Prometheus for each regression that nobody acknowledged: an alert that fires at once."""
        told = self._read()
        if told is None:
            return Found()
        rules = [
            _rule(history, change)
            for history in told.get("histories", [])
            for change in history.get("changes", [])
            if change.get("regresses")
        ]
        return Found(
            rules=[Rules("trend", [{"name": "tippingpoint-trend", "rules": rules}])] if rules else []
        )

    def _read(self) -> dict[str, Any] | None:
        """Return the trend's document; None while there is none."""
        try:
            if self._file.stat().st_size > _LARGEST:
                return None
            told: object = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cast("dict[str, Any]", told) if isinstance(told, dict) else None


def _changed(path: Path) -> float:
    """Return when a file was changed: seconds since the epoch, 0 without it."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _rule(history: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    labels = {
        "severity": "warning",
        "target": history["target"],
        "plan": history["plan"],
        "run": change["run"],
    }
    return {
        "alert": "TippingPointRegression",
        "expr": "vector(1)",
        "labels": {**labels, "figure": _plain(change["what"])},
        "annotations": {
            "summary": _plain(change["words"]),
            "description": "The action trend shows it, and acknowledges it with a reason.",
        },
    }


def _plain(text: str) -> str:
    """Return a text without what Prometheus would take for a template."""
    return text.replace("{{", "{ {")
