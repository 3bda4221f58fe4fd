"""Single events for the journal; equal events within a second are counted together."""

from __future__ import annotations

from tippingpoint.workloads.load import Event

_TOGETHER = 1.0


class GroupedEvents(list[Event]):
    """Events since they were last cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[str, tuple[tuple[str, str], ...]], Event] = {}

    def note(self, moment: float, event: str, **fields: object) -> None:
        """Add one event at a moment on the monotonic clock."""
        self.append((moment, event, fields))

    def tally(self, moment: float, event: str, by: dict[str, str], error: str = "") -> None:
        """Count one more event that differs from others by the fields `by`; `error` is kept from the first in a
        second."""
        key = (event, tuple(by.items()))
        found = self._open.get(key)
        if found is not None and moment - found[0] < _TOGETHER:
            found[2]["count"] += 1
            return
        fields: dict[str, object] = {**by, "count": 1}
        if error:
            fields["error"] = error
        self._open[key] = (moment, event, fields)
        self.append(self._open[key])

    def clear(self) -> None:
        """Forget all events; later ones are counted anew."""
        super().clear()
        self._open.clear()
