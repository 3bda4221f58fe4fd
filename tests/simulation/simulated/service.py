"""A lease service whose truth is known: how many operations a second it serves, and what goes wrong with it when.

Operations are served one after the other, each in a time that is drawn. The service knows no clock but the loop's, and
no chance but its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from tests.simulation.lives import LIFE, Life
from tippingpoint.errors import OperationFailed
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.store.target import Change

TROUBLES = ("silent", "slow", "errors", "forgets", "denies", "early", "twice")
TROUBLES_OF_KEYS = ("silent", "slow", "errors", "forgets", "denies", "twice")
LIES_OF_KEYS = ("forgets", "twice")
"""Troubles in which a store does what it must never do. A key that is deleted twice was not there the second time."""
TROUBLES_OF_THINGS = ("silent", "slow", "errors", "forgets", "denies", "twice", "vanish")


@dataclass
class Trouble:
    """What goes wrong from one moment to another, in seconds of the loop."""

    kind: str
    """`silent`: nothing is answered; `slow`: all takes ten times as long; `errors`: half of all fails at once. It may
    also lie, in half of its answers: `forgets`: it says that it did what it did not; `denies`: it does it, and says
    that it failed; `twice`: it does it twice, and says what came of the second time. `early`: leases run out long
    before their time; `vanish`: now and then a thing is gone when something is asked."""
    begin: float
    end: float


@dataclass
class Service:
    """The leases of a service, by name, and its queue."""

    capacity: float
    """Operations served per second."""
    chance: random.Random
    base: float = 0.002
    """Seconds that an operation takes without a queue, on the way."""
    longest_queue: float = 1e9
    """Seconds of work from which on operations are refused."""
    troubles: list[Trouble] = field(default_factory=list)
    foreign: list[tuple[float, float, float]] | None = None
    """When other programs take which share of its processor (begin, end, share); None if its machine does not tell."""
    leases: dict[str, tuple[object, float]] = field(default_factory=dict)
    """Who holds a lease, and when it runs out."""
    served: list[float] = field(default_factory=list)
    """When operations came."""
    answers: list[tuple[float, str, str]] = field(default_factory=list)
    """When a worker that is alive got an answer, to which operation, and what it said."""
    ran_out: list[float] = field(default_factory=list)
    """When a lease ran out whose holder is alive, and was last told that it holds it."""
    unremembered: list[str] = field(default_factory=list)
    """What was made before a ledger said so."""
    ledgers: dict[str, Path] = field(default_factory=dict)
    """By prefix, the ledger that has to name it before anything of it is made."""
    revision: int = 1
    """The revision of a store's last change."""
    changes: list[Change] = field(default_factory=list)
    """What has changed in a store."""
    followers: list[Callable[[Change], None]] = field(default_factory=list)
    """Called with each change."""
    _busy_until: float = 0.0
    _believed: dict[str, tuple[object, Life | None]] = field(default_factory=dict)
    """Who was told last that they hold a lease, and have not been told otherwise; the process in which that is."""
    _waiting: dict[tuple[str, object], Callable[[], object]] = field(default_factory=dict)

    def answer(self, operation: str, name: str, holder: object, do: Callable[[], object]) -> Future[object]:
        """Serve an operation on a lease in its turn; the future has what `do` returns when it is answered."""
        loop = asyncio.get_running_loop()
        future: Future[object] = loop.create_future()
        now = loop.time()
        self.served.append(now)
        trouble = next((each for each in self.troubles if each.begin <= now < each.end), None)
        kind = trouble.kind if trouble is not None else ""
        if kind == "vanish":
            self._vanish()
        if (kind == "errors" and self.chance.random() < 0.5) or self._busy_until - now > self.longest_queue:
            loop.call_at(now + self.base, _fail, future, "too many requests", context=_OUTSIDE)
            return future
        work = self.chance.expovariate(self.capacity) * (10 if kind == "slow" else 1)
        work /= 1 - sum(share for begin, end, share in self.foreign or () if begin <= now < end)
        self._busy_until = max(now, self._busy_until) + work
        done = self._busy_until + self.base * self.chance.uniform(0.5, 1.5)
        if trouble is not None and kind == "silent":
            done = max(done, trouble.end)
        lies = kind if kind in ("forgets", "denies", "twice") and self.chance.random() < 0.5 else ""
        asked = operation, name, holder, LIFE.get()
        loop.call_at(done, self._done, asked, future, do, lies, context=_OUTSIDE)
        return future

    def _done(
        self,
        asked: tuple[str, str, object, Life | None],
        future: Future[object],
        do: Callable[[], object],
        lies: str,
    ) -> None:
        operation, name, holder, client = asked
        leases = {**self.leases} if lies == "forgets" else {}
        found = do()
        if lies == "forgets":
            self.leases = leases
        elif lies == "denies":
            _fail(future, "internal error")
        elif lies == "twice":
            found = do()
        if not future.done() and not (client is not None and client.dead):
            now = asyncio.get_running_loop().time()
            self.answers.append((now, operation, "ok" if found else "no"))
            if operation in ("claim", "extend") and found:
                self._believed[name] = holder, client
            else:
                self.expect_no_more(name, holder)
            future.set_result(found)

    def expect_no_more(self, name: str, holder: object) -> None:
        """Note that a holder does not take itself for one any more."""
        if name in self._believed and self._believed[name][0] == holder:
            del self._believed[name]

    def held(self) -> set[str]:
        """Return the names of all leases that somebody holds now."""
        return {name for name in self.leases if not self.free(name)}

    def free(self, name: str) -> bool:
        """Whether nobody holds a lease now."""
        return name not in self.leases or self.leases[name][1] <= asyncio.get_running_loop().time()

    def make_of(self, prefix: str) -> None:
        """Note whether the first thing of a prefix is made before the ledger has it."""
        ledger = self.ledgers.pop(prefix, None)
        if ledger is not None and not (ledger.exists() and prefix in ledger.read_text()):
            self.unremembered.append(prefix)

    def changed(self, name: str, *, deleted: bool) -> None:
        """Tell those who follow a store of a change at its present revision."""
        change = Change(self.revision, name.encode(), deleted)
        self.changes.append(change)
        for follower in self.followers:
            follower(change)

    def let_go(self, name: str) -> None:
        """Free a lease, and tell who waits for it."""
        if self.leases.pop(name, None) is not None and self.followers:
            self.revision += 1
            self.changed(name, deleted=True)
        for key in [key for key in self._waiting if key[0] == name]:
            self._waiting.pop(key)()

    def hold(self, name: str, holder: object, seconds: float) -> None:
        """Have a lease held for some time from now on; it is free after that, and those who wait are told."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if any(each.kind == "early" and each.begin <= now < each.end for each in self.troubles):
            seconds *= self.chance.uniform(0.1, 1.0)
        until = now + seconds
        self.leases[name] = (holder, until)
        loop.call_at(until, self._run_out, name, until, context=_OUTSIDE)

    def keep(self, name: str, state: str) -> None:
        """Have a thing exist in a state, until it is let go."""
        self.leases[name] = state, inf

    def _vanish(self) -> None:
        things = [name for name, (_, until) in self.leases.items() if until == inf]
        if things and self.chance.random() < 0.1:
            self.let_go(self.chance.choice(things))

    def _run_out(self, name: str, until: float) -> None:
        holder, over = self.leases.get(name, ("", 0.0))
        if over != until:
            return
        believed, client = self._believed.get(name, (None, None))
        if believed == holder and client is not None and not client.dead:
            self.ran_out.append(until)
        self.let_go(name)

    def wait(self, name: str, holder: object, released: Callable[[], None]) -> None:
        """Call `released` once when the lease is free."""
        if self.free(name):
            asyncio.get_running_loop().call_soon(released)
        else:
            # It belongs to the process that waits, whoever frees the lease.
            loop = asyncio.get_running_loop()
            context = contextvars.copy_context()
            self._waiting[name, holder] = lambda: loop.call_soon(released, context=context)

    def unwait(self, name: str, holder: object) -> None:
        """Call nobody for this holder."""
        self._waiting.pop((name, holder), None)


_OUTSIDE = contextvars.Context()
"""What a service does is nobody's process: it answers, and does what it was asked to, after its client was killed."""
SERVICES: dict[str, Service] = {}
"""The services of the present simulation, by name."""


def _fail(future: Future[object], why: str) -> None:
    if not future.done():
        future.set_exception(OperationFailed(why))


class Client:
    """A worker's connection to a service: a ClaimTarget."""

    def __init__(self, service: Service, prefix: str, claim_time: float) -> None:
        self._service = service
        self._prefix = prefix
        self._claim_time = claim_time
        self._open: set[Future[object]] = set()

    async def open(self) -> TargetFacts:
        await asyncio.sleep(self._service.base)
        return TargetFacts(kind="simulated", version="1.0", members=["s1"])

    def _name(self, lease: int) -> str:
        return f"{self._prefix}-{lease}"

    def _ask(self, operation: str, name: str, holder: int, do: Callable[[], object]) -> Future:
        future = self._service.answer(operation, name, holder, do)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        name = self._name(lease)

        def claim() -> Holding | None:
            if not self._service.free(name):
                return None
            self._service.make_of(self._prefix)
            self._service.hold(name, holder, self._claim_time)
            return Holding(lease, holder)

        self._service.expect_no_more(name, holder)
        return self._ask("claim", name, holder, claim)

    def extend(self, holding: Holding) -> Future[bool]:
        name = self._name(holding.lease)

        def extend() -> bool:
            if self._service.free(name) or self._service.leases[name][0] != holding.holder:
                return False
            self._service.hold(name, holding.holder, self._claim_time)
            return True

        return self._ask("extend", name, holding.holder, extend)

    def release(self, holding: Holding) -> Future[None]:
        name = self._name(holding.lease)
        self._service.expect_no_more(name, holding.holder)
        return self._ask("release", name, holding.holder, lambda: self._service.let_go(name))

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        self._service.wait(self._name(lease), holder, released)

    def unwatch(self, lease: int, holder: int) -> None:
        self._service.unwait(self._name(lease), holder)

    async def drop(self) -> None:
        await self.close()

    async def close(self) -> None:
        for future in list(self._open):
            _fail(future, "closed")
