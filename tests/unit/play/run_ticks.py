"""Ticks as workers send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tippingpoint.play.messages import Tick
from tippingpoint.rundir.journal import Interval, interval_lines


def tick_of(held: int = 0, samples: Mapping[str, Interval] | None = None, **fields: Any) -> Tick:
    """A worker's tick of a second in which it recorded these samples, by tag; nothing else went on."""
    quiet: dict[str, Any] = {
        "waiting": 0,
        "in_flight": 0,
        "up": True,
        "cpu": 0.0,
        "loop_lag": 0.0,
        "rss": 0.0,
    }
    interval = {"t": 4.0, "seconds": 1.0, "unwritten": 0, "retries": 0, "lost": 0}
    lines = interval_lines(3.0, 4.0, samples or {})
    return Tick.model_validate({**quiet, **interval, "held": held, "lines": lines, **fields})
