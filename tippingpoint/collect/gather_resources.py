"""A target's resources, from a Prometheus into the run's directory: `python -m tippingpoint.collect.gather_resources`.

Two processes: the one that the collector starts, with the run's directory and a user, may write there and reads
nothing of others; the other one, that user's, asks Prometheus and reads what units sent. What is secret comes on
standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from tippingpoint.collect.reports import CollectedRun, gathered
from tippingpoint.collect.runs import Runs
from tippingpoint.collect.sandbox import as_user_with_a_place, give_way, how_it_ended, judge
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.rundir.resources import LARGEST_FILE, Resources

SECONDS = 300.0
"""How long gathering may take: its queries have two minutes (resources.GATHER_WITHIN), and the run is to be read."""
_REFUSED = 2


class Asked(BaseModel):
    """A run, and the Prometheus that scraped its target."""

    run: CollectedRun
    url: str
    cacert: str = ""
    """PEM, as the charm's secret has it; empty for the machine's own authorities."""
    username: str = ""
    password: str = Field(default="", repr=False)
    token: str = Field(default="", repr=False)
    selector: str = ""
    """Label matchers, without braces, of what is the target's there; empty for everything but generators."""


def main() -> None:
    """With a directory and a user, see to the whole; without, say what Prometheus has, on standard output."""
    if len(sys.argv) == 3:
        _oversee(Path(sys.argv[1]), sys.argv[2])
    else:
        _gather()


def _oversee(directory: Path, user: str) -> None:
    """Have the run's resources.json written, also where there is nothing but a reason, and then the run judged."""
    asked = sys.stdin.buffer.read()
    run = Runs(directory.parent).find(directory.name)
    fresh = run.resources_file.with_name(f".{run.resources_file.name}.new")
    try:
        with contextlib.suppress(OSError):  # a full disk: the report says that there are no resources
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
        judge(run, user)


def _gathered_by(user: str, asked: bytes, fresh: Path) -> str:
    """Why there is nothing in that file; empty where there is."""
    fresh.unlink(missing_ok=True)  # one whose overseer was killed may be writing there yet
    with fresh.open("wb") as answer, as_user_with_a_place(user) as confined:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "tippingpoint.collect.gather_resources"],
                input=asked,
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
                **confined,
            )
        except subprocess.TimeoutExpired:
            return f"not done after {SECONDS:.0f} s"
    if ended.returncode == 0 and fresh.stat().st_size <= LARGEST_FILE:
        return ""
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    if ended.returncode == _REFUSED and said:
        return said[-1][:300]
    return f"it could not be asked: {how_it_ended(ended.returncode)}"


def _gather() -> None:
    give_way()
    try:
        asked = Asked.model_validate_json(sys.stdin.buffer.read())
        with tempfile.TemporaryDirectory(prefix="tippingpoint-") as place:
            found = asyncio.run(_asked(asked, Path(place)))
    except (UserError, TargetError, OperationFailed) as problem:
        print(problem, file=sys.stderr)
        sys.exit(_REFUSED)
    except ValidationError:  # whose text could show a password
        print("what was collected is damaged", file=sys.stderr)
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
    """A file with this text, for its owner alone, that is on no disk and goes with this process; None where there is no
    text."""
    if not text:
        return None
    kept = os.memfd_create("tippingpoint")
    os.fchmod(kept, 0o600)
    with open(kept, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    return Path(f"/proc/self/fd/{kept}")


if __name__ == "__main__":
    main()
