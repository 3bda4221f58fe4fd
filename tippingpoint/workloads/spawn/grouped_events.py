"""What matters singly, on its way to the journal; what happens often within a second is counted together."""

from __future__ import annotations

from tippingpoint.workloads.load import Event

_TOGETHER = 1.0


class GroupedEvents(list[Event]):
    """Events since they were last cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[str, tuple[tuple[str, str], ...]], Event] = {}

    def note(self, moment: float, event: str, **fields: object) -> None:
        """One event at a moment on the monotonic clock."""
        self.append((moment, event, fields))

    def tally(self, moment: float, event: str, by: dict[str, str], error: str = "") -> None:
        """One more of what is told apart by the fields `by`; `error` is what the first of a second said."""
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
        """Forget all; what comes next begins a count of its own."""
        super().clear()
        self._open.clear()
