"""Gathers a target's resources from a Prometheus into a run's directory: `python -m
tippingpoint.collect.gather_resources`.

There are two processes. The collector starts the first, with the run's directory and a user; it may write there, and
reads no data from others. The second runs as that user, queries Prometheus, and reads what units sent. Secrets come on
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from tippingpoint.collect.reports import CollectedRun, gathered
from tippingpoint.collect.runs import Runs
from tippingpoint.collect.sandbox import as_user_with_a_place, give_way, how_it_ended, judge
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.rundir.resources import LARGEST_FILE, Resources
from tippingpoint.util.process import protect

SECONDS = 300.0
"""The most seconds of gathering: its queries have two minutes (resources.GATHER_WITHIN), and the run has to be
read."""
_REFUSED = 2


class Asked(BaseModel):
    """A run, and the Prometheus that scraped its target."""

    run: CollectedRun
    url: str
    cacert: str = ""
    """PEM, as in the charm's secret; empty for the machine's own authorities."""
    username: str = ""
    password: str = Field(default="", repr=False)
    token: str = Field(default="", repr=False)
    selector: str = ""
    """Label matchers, without braces, that select the target's series; empty for everything but generators."""


def main() -> None:
    """With a directory and a user, oversee everything; without, write what Prometheus has to standard output."""
    protect()
    if len(sys.argv) == 3:
        _oversee(Path(sys.argv[1]), sys.argv[2])
    else:
        _gather()


def _oversee(directory: Path, user: str) -> None:
    """Have the run's resources.json written, even if it only has the reason for a failure; then have the run judged.

    If it is stopped meanwhile, it leaves nothing and does not have the run judged: all of that is done again later.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    asked = sys.stdin.buffer.read()
    run = Runs(directory.parent).find(directory.name)
    fresh = run.resources_file.with_name(f".{run.resources_file.name}.new")
    try:
        with contextlib.suppress(OSError):  # if the disk is full, the report notes the missing resources
            why = _gathered_by(user, asked, fresh)
            if why:
                lacking = Resources(
                    source="Prometheus",
                    step=1.0,
                    t=[],
                    leader=[],
                    figures=[],
                    missing=[("Prometheus", why)],
                    gaps=[],
                )
                fresh.write_text(lacking.model_dump_json(), encoding="utf-8")
            fresh.chmod(0o644)
            fresh.replace(run.resources_file)
    finally:
        fresh.unlink(missing_ok=True)
        if not isinstance(sys.exception(), SystemExit):
            judge(run, user)


def _gathered_by(user: str, asked: bytes, fresh: Path) -> str:
    """Have the file written; returns why it could not be, or an empty text."""
    fresh.unlink(missing_ok=True)  # a process whose overseer was killed may still be writing to it
    with fresh.open("wb") as answer, _place_in(fresh.parent) as place:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "tippingpoint.collect.gather_resources"],
                input=asked,
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
                **as_user_with_a_place(place, user),
            )
        except subprocess.TimeoutExpired:
            return f"not finished after {SECONDS:.0f} s"
    if ended.returncode == 0 and fresh.stat().st_size <= LARGEST_FILE:
        return ""
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    if ended.returncode == _REFUSED and said:
        return said[-1][:300]
    return f"it could not be queried: {how_it_ended(ended.returncode)}"


@contextlib.contextmanager
def _place_in(directory: Path) -> Generator[Path]:
    """Make a directory for temporary files in the run's directory; the next process removes what a killed one left."""
    place = directory / ".gathering"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _gather() -> None:
    give_way()
    try:
        asked = Asked.model_validate_json(sys.stdin.buffer.read())
        with tempfile.TemporaryDirectory(prefix="tippingpoint-") as place:
            found = asyncio.run(_asked(asked, Path(place)))
    except (UserError, TargetError, OperationFailed) as problem:
        print(problem, file=sys.stderr)
        sys.exit(_REFUSED)
    except ValidationError:  # its text could contain a password
        print("the collected data is damaged", file=sys.stderr)
        sys.exit(_REFUSED)
    sys.stdout.write(found.model_dump_json())


async def _asked(asked: Asked, place: Path) -> Resources:
    from tippingpoint.monitoring.gather import gather_run
    from tippingpoint.monitoring.prometheus import Prometheus
    from tippingpoint.rundir.results import load_run

    run = load_run(gathered(asked.run, place))
    async with Prometheus(
        asked.url,
        ca=_kept(asked.cacert),
        username=asked.username,
        password_file=_kept(asked.password),
        token_file=_kept(asked.token),
    ) as prometheus:
        return await gather_run(run, prometheus, selector=asked.selector)


def _kept(text: str) -> Path | None:
    """Return a file with this text that only its owner can read; it is on no disk and disappears with this process.

    Returns None for an empty text.
    """
    if not text:
        return None
    kept = os.memfd_create("tippingpoint")
    os.fchmod(kept, 0o600)
    with open(kept, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    return Path(f"/proc/self/fd/{kept}")


if __name__ == "__main__":
    main()
