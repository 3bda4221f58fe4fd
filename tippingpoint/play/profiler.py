"""Takes profiles of a run's target from Go's pprof: one of CPU and one of lock waits in each stage.

They are requested when the load is up: for leases when a hold begins, for what is made from the stage's begin on. Each
hold continues until its profiles arrive. If a member does not answer, that is an event of the run, which goes on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

from tippingpoint.errors import one_line
from tippingpoint.play.record import Record
from tippingpoint.rundir.files import create_file
from tippingpoint.rundir.pprof import LARGEST_FILE, Kind, read_profile
from tippingpoint.rundir.profiles import NOT_TAKEN, TAKEN, TakenProfile
from tippingpoint.util.protobuf import Malformed
from tippingpoint.util.rest import TooLarge, broken, open_session, read_body

LONGEST = 10
"""The most seconds of a profile: Go samples a fully used core 100 times a second, so these are 1000 samples."""
ANSWERED_WITHIN = 20.0
"""Seconds that a member may take to answer, in addition to those that it samples."""
MOST_STAGES = 100
"""The most stages that are profiled."""
MOST_BYTES = 64 << 20
"""The most bytes that all profiles of a run take."""
_PATHS: dict[Kind, str] = {"CPU": "profile", "lock wait": "mutex"}


class _NotTaken(Exception):
    """Why there is no profile. `for_good` means that asking again would not help."""

    def __init__(self, problem: str, *, for_good: bool = False) -> None:
        super().__init__(problem)
        self.for_good = for_good


class Profiler:
    """Takes the profiles of one run."""

    def __init__(self, urls: Sequence[str], tls: ssl.SSLContext | bool, record: Record) -> None:
        self._urls = urls
        self._tls = tls
        self._record = record
        self._session: aiohttp.ClientSession | None = None
        self._stages: set[int] = set()
        self._bytes = 0
        self._silent: set[tuple[str, Kind]] = set()
        """The members and kinds that need not be asked again."""
        self._under_way: asyncio.Task[None] | None = None
        self.taken = asyncio.Event()
        """Set unless profiles are under way."""
        self.taken.set()

    def begin(self, stage: int, lasts: float) -> None:
        """Begin to profile a stage, whose load lasts `lasts` seconds; does nothing if that was done before."""
        if stage in self._stages or not (self._under_way is None or self._under_way.done()):
            return
        if len(self._stages) >= MOST_STAGES or self._bytes >= MOST_BYTES:
            return
        self._stages.add(stage)
        seconds = min(LONGEST, max(1, round(lasts)))
        self.taken.clear()
        self._under_way = asyncio.create_task(self._profile(stage, seconds))
        self._under_way.add_done_callback(lambda _: self.taken.set())

    @property
    def within(self) -> float:
        """The most seconds that a profile takes."""
        return LONGEST + ANSWERED_WITHIN + 1

    async def close(self) -> None:
        """Give up requests under way, and close all connections."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])
        if self._session is not None:
            await self._session.close()

    async def _profile(self, stage: int, seconds: int) -> None:
        kinds: tuple[Kind, ...] = ("CPU", "lock wait")
        await asyncio.gather(
            *(
                self._take(
                    TakenProfile(stage=stage, kind=kind, member=member, begin=begin, seconds=seconds), url
                )
                for begin in [round(self._record.now(), 3)]
                for member, url in enumerate(self._urls, start=1)
                for kind in kinds
                if (url, kind) not in self._silent
            )
        )

    async def _take(self, asked: TakenProfile, url: str) -> None:
        """Take one profile, and keep it as a file and an event; or record why there is none."""
        try:
            async with asyncio.timeout(asked.seconds + ANSWERED_WITHIN):
                content = await self._ask(
                    f"{url}/debug/pprof/{_PATHS[asked.kind]}?seconds={asked.seconds:.0f}"
                )
            profile = await asyncio.to_thread(read_profile, content, asked.kind)
            if not profile.seconds:
                # Go before 1.16 does not accept `seconds` for locks, nor does the pprof of Juju's agents before 4.0.
                raise _NotTaken(f"it tells of each {asked.kind} since its start only", for_good=True)
            await asyncio.to_thread(create_file, self._record.inside / asked.file, content)
        except _NotTaken as problem:
            if problem.for_good:
                self._silent.add((url, asked.kind))
            said = str(problem)
        except (Malformed, TooLarge) as problem:
            said = str(problem)
        except TimeoutError:
            said = f"no answer within {ANSWERED_WITHIN:.0f} s"
        except aiohttp.ClientError as problem:
            said = broken("", problem)[0].removeprefix(": ")
        except OSError as problem:
            said = f"it could not be kept: {problem.strerror}"
        else:
            self._bytes += len(content)
            self._record.event(TAKEN, **asked.model_dump())
            return
        problem = f"{urlsplit(url).netloc}: {one_line(said)}"
        self._record.event(NOT_TAKEN, stage=asked.stage, kind=asked.kind, problem=problem)

    async def _ask(self, url: str) -> bytes:
        if self._session is None:
            self._session = open_session(self._tls)
        async with self._session.get(url, allow_redirects=False) as response:
            content = await read_body(response, LARGEST_FILE)
        if response.status != HTTPStatus.OK:
            said = one_line(
                content.decode(errors="replace"), 100
            )  # that of 500 if somebody else takes a profile
            if response.status == HTTPStatus.NOT_FOUND:
                said = "pprof is not enabled there"
            raise _NotTaken(
                f"HTTP {response.status}{f': {said}' if said else ''}", for_good=400 <= response.status < 500
            )
        return content
