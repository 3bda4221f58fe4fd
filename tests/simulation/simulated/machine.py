"""The processor of a simulated service, and who else uses it."""

from __future__ import annotations

from collections.abc import Collection

from tests.simulation.simulated.service import SERVICES
from tippingpoint.util import timing
from tippingpoint.util.kernel_counters import MachineUse

_OF_TARGET = 0.3
"""The share of its processor that the service takes, which nobody asks for here."""


class SimulatedCounters:
    """What a simulated machine counts. It does not tell unless it was drawn who else runs on it."""

    def __init__(self) -> None:
        self._looked: float | None = None

    def look(self, roots: Collection[int]) -> MachineUse | None:
        now, since = timing.monotonic(), self._looked
        self._looked = now
        service = next(iter(SERVICES.values()), None)
        if service is None or service.foreign is None or since is None:
            return None
        others = sum(
            share * max(0.0, min(end, now) - max(begin, since)) for begin, end, share in service.foreign
        )
        target = _OF_TARGET * (now - since)
        return MachineUse(
            cpus=1, busy=target + others, ours=0.0, target=target, steal=0.0, waited=others, stalled={}
        )


def simulated_counters() -> SimulatedCounters | None:
    """Return the counters of the machine; None in a simulation whose machine does not tell."""
    told = any(service.foreign is not None for service in SERVICES.values())
    return SimulatedCounters() if told else None
