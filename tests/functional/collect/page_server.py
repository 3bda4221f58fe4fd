"""The page of collected runs on loopback, and what its reader's browser or script does."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.functional.program import WITHIN_S
from tests.unit.made.synthetic import JUJU, STARTED, MadeStage, write_run
from tippingpoint.collect import sandbox
from tippingpoint.collect.page.access import PageAccess
from tippingpoint.collect.page.reports import Reports
from tippingpoint.collect.page.server import serving
from tippingpoint.collect.page.tls import find_or_make, server_context
from tippingpoint.collect.page.views import Pages
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitWord
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.plan.read import load_plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.manifest import Manifest

TOKEN = "correct-horse-battery-staple"
"""It must show nowhere."""
UNITS = ["load-claimer/0", "load-claimer/1"]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode()

    @property
    def cookie(self) -> str:
        """The cookie that is set, as the next request carries it."""
        return self.headers.get("Set-Cookie", "").partition(";")[0]


@dataclass
class Reader:
    """Who asks a page, with TLS that trusts its certificate and no other."""

    port: int
    certificate: Path
    host: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def context(self) -> ssl.SSLContext:
        """What verifies the page."""
        return ssl.create_default_context(cafile=self.certificate)

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        """One request. Names of headers have _ for -."""
        there = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=WITHIN_S)
        try:
            told = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
            there.request(method, path, body, told)
            answer = there.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            there.close()

    def login(self, token: str = TOKEN, there: str = "/") -> Answer:
        """The login form, filled in."""
        body = f"token={token}&next={there}"
        return self.ask("/login", "POST", body, Content_Type="application/x-www-form-urlencoded")

    def with_token(self, token: str = TOKEN) -> Reader:
        """A script that knows the token."""
        return Reader(self.port, self.certificate, self.host, {"Authorization": f"Bearer {token}"})

    def connect(self) -> ssl.SSLSocket:
        """A connection that says nothing yet."""
        context = self.context  # made before the page counts the time to the handshake
        plain = socket.create_connection((self.host, self.port), timeout=WITHIN_S)
        return context.wrap_socket(plain, server_hostname=self.host)


@contextlib.contextmanager
def page_of(runs: Path, state: Path) -> Iterator[Reader]:
    """The page of these runs, in a thread of this process. Its engine runs as ourselves: nobody may not read this
    checkout."""
    pair = find_or_make(state, [])
    place = socket.create_server(("127.0.0.1", 0))
    started, loop = threading.Event(), asyncio.new_event_loop()
    ending = asyncio.Event()

    async def serve() -> None:
        pages = Pages(Runs(runs), PageAccess(TOKEN), Reports(state / "reports"))
        async with serving(pages, place, server_context(pair)):
            started.set()
            await ending.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sandbox, "UNPRIVILEGED", "")
            assert started.wait(WITHIN_S)
            yield Reader(place.getsockname()[1], pair.certificate)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(WITHIN_S)
        loop.close()


def a_run(name: str, **changes: Any) -> SharedRun:
    """A run of UNITS that is over."""
    made = begin_run(load_plan("juju-leases-small"), UNITS, STARTED - 10.0)
    last = Turn(number=5, stage=5, kind="ramp", of=2, begin=STARTED + 88, hold=STARTED + 90, lasts=20)
    return made.model_copy(update={"id": name, "over": True, "started": STARTED, "turns": [last], **changes})


def collect(runs: Runs, run: SharedRun, digests: Mapping[str, str]) -> None:
    """Have a run here, with these units' results."""
    runs.keep(run)
    for unit, digest in digests.items():
        said = UnitWord(run=run.id, phase="over", t=run.made, cores=2, offset=0.0, offset_error=0.001)
        runs.keep_word(unit, said)
        runs.keep_digest(unit, run.id, digest)


def digests_of(place: Path, run: str, claim_ms: float) -> dict[str, str]:
    """What the parts of UNITS came to, with this latency of claims; made below a directory."""
    plan, made = load_plan("juju-leases-small"), dict[str, str]()
    for index, unit in enumerate(UNITS):
        stages = [
            MadeStage(
                size=part_of(plan, index, 2).stages[n].leases,
                claim_ms=claim_ms,
                hold=20,
                connect_ms=5.0,
                extends_per_second=part_of(plan, index, 2).stages[n].leases / plan.workload.renew_time,
            )
            for n in range(len(plan.stages))
        ]
        directory = write_run(
            place / f"{run}.{index}",
            stages,
            title=plan.name,
            plan=plan.model_dump(mode="json", exclude_none=True),
            target=JUJU,
            seed=index,
            share=(index, 2),
            unit=unit,
        )
        Manifest.load(directory).model_copy(update={"id": f"{run}.{index}"}).save(directory)
        made[unit] = make_digest(directory)
    return made
