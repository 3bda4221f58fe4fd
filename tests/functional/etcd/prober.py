"""A client of its own that renews a lease of an etcd again and again, and knows when it was served.

It does what the run does. After an election, etcd renews leases later than it writes keys: the new leader has to take
them over first.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.functional.program import etcd_call

_EVERY_S = 0.02
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Request:
    """One renewal: when it was first sent, and when whichever member did it answered, by the wall clock; whether it was
    done.

    A member that is killed refuses it at once, and the next one does it: as for a run, that is late only if it took
    long.
    """

    sent: float
    ended: float
    done: bool


@dataclass
class Prober:
    """Renews its lease again and again until it is told to stop; a member that does not serve is left for the next."""

    endpoints: Sequence[str]
    requests: list[Request] = field(default_factory=list[Request])

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)
        self._lease = etcd_call(self.endpoints[0], "/v3/lease/grant", {"TTL": 3600})["ID"]

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _probe(self) -> None:
        member = 0
        while not self._over.wait(_EVERY_S):
            sent, done = time.time(), False
            while not (done := self._renew(self.endpoints[member])) and not self._over.wait(_EVERY_S):
                member = (member + 1) % len(self.endpoints)
            self.requests.append(Request(sent, time.time(), done))

    def _renew(self, endpoint: str) -> bool:
        body = json.dumps({"ID": self._lease}).encode()
        request = urllib.request.Request(f"{endpoint}/v3/lease/keepalive", body, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return "TTL" in json.load(answer).get("result", {})
        except (OSError, ValueError, urllib.error.URLError):
            return False

    def longest_before(self, moment: float) -> float:
        """Return how long the slowest renewal before a moment took, in seconds."""
        return max((each.ended - each.sent for each in self.requests if each.ended < moment), default=0.0)

    def noticed_and_back(self, fault: float, until: float, limit: float) -> tuple[float, float]:
        """Return the seconds from a fault until a renewal was overdue, and until renewals were served in time.

        A later renewal that was answered, late by less than the limit, between others that were in time is a hiccup: a
        run's 99th percentile allows some, too.
        """
        there = [each for each in self.requests if fault <= each.ended and each.sent < until]
        late = [each.ended - each.sent > limit for each in there]
        bad = [each for each, is_late in zip(there, late, strict=True) if is_late]
        bad[1:] = [
            each
            for number, each in enumerate(there)
            if late[number]
            and each is not bad[0]
            and (each.ended - each.sent > 2 * limit or any(late[number - 1 : number + 2 : 2]))
        ]
        assert bad, "the prober was served all the time"
        assert bad[-1].done, "the prober was not served again"
        return max(0.0, min(each.sent for each in bad) + limit - fault), bad[-1].ended - fault
