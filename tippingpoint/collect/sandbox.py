"""Runs the engine for reports, in a process without privileges.

What units sent cannot be trusted, and the engine is too heavy for a hook or a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tippingpoint.collect import WORSE
from tippingpoint.collect.runs import StoredRun
from tippingpoint.errors import UserError
from tippingpoint.util.exit_codes import BAD_INPUT

SECONDS = 45.0
"""Seconds that an action waits for the engine: `juju run` itself gives up after 60 s."""
UNPRIVILEGED = "nobody"
"""The user that root runs the engine as; other users cannot choose one."""


def question(do: str, runs: Sequence[StoredRun], **asked: Any) -> bytes:
    """Return the question for the engine: see reports.Asked."""
    return json.dumps({"do": do, "runs": [run.as_text() for run in runs], **asked}).encode()


def write(path: Path, asked: bytes, *, within: float | None = None) -> bool:
    """Have the engine's answer written to a file; returns True if a comparison found a regression.

    Waits for `within` seconds, by default SECONDS. Raises UserError with the engine's own line if it refuses, or with a
    line about the time limit if it takes too long.
    """
    patience = SECONDS if within is None else within
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as answer, tempfile.TemporaryDirectory(prefix="tippingpoint-") as place:
            ended = subprocess.run(
                _COMMAND,
                input=asked,
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=patience,
                check=False,
                **as_user_with_a_place(Path(place)),
            )
        if ended.returncode not in (0, WORSE):
            said = ended.stderr.decode(errors="replace").strip().splitlines()
            line = said[-1].removeprefix("tippingpoint: ") if said else how_it_ended(ended.returncode)
            raise _Refused(line if ended.returncode == BAD_INPUT else f"the engine failed: {line[:300]}")
        fresh.replace(path)
    except subprocess.TimeoutExpired:
        accepted = f"a report that is ready within {patience:.0f} s; try again, or export the runs"
        raise UserError("report", path.name, accepted) from None
    finally:
        fresh.unlink(missing_ok=True)
    return ended.returncode == WORSE


def judge(run: StoredRun, user: str | None = None) -> None:
    """Have the engine write the run's verdict to its verdict_file, some seconds after this returns.

    `user` is as in as_user.
    """
    begin(run.verdict_file, question("judge", [run]), user)


def begin(path: Path, question: bytes, user: str | None = None) -> None:
    """Have the engine write its answer to a file, some seconds after this returns; `user` is as in as_user."""
    with tempfile.TemporaryFile() as asked, path.open("wb") as answer:
        asked.write(question)
        asked.seek(0)
        subprocess.Popen(
            _COMMAND,
            stdin=asked,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **as_user(user),
        )


def conclude(run: StoredRun, prometheus: Mapping[str, str]) -> None:
    """Have the run's resources gathered from a Prometheus (gather_resources.Asked), and then the run judged.

    That takes some minutes at most, after this returns. The content of `prometheus` is on no disk.
    """
    run.verdict_file.touch()  # note that this has begun
    with open(os.memfd_create("tippingpoint"), "w+b") as asked:
        asked.write(json.dumps({"run": run.as_text(), **prometheus}).encode())
        asked.seek(0)
        subprocess.Popen(
            [sys.executable, "-m", "tippingpoint.collect.gather_resources", str(run.directory), UNPRIVILEGED],
            stdin=asked,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=_environment(),
        )


def give_way() -> None:
    """Let the kernel kill this process first when memory runs out.

    Its work can be repeated; that of the other services cannot.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def how_it_ended(code: int) -> str:
    """Return why a process without a message failed, according to its exit code."""
    if code == -signal.SIGKILL:
        return "it was killed: the machine has too little memory for it"
    return f"exit code {code}"


class _Refused(UserError):
    """Raised with a line that the engine has already written."""

    def __init__(self, line: str) -> None:
        Exception.__init__(self, line)


_COMMAND = [sys.executable, "-m", "tippingpoint.collect"]


def as_user(user: str | None = None) -> dict[str, Any]:
    """Return how to run a process of the engine: without privileges, and with nothing of ours except the modules.

    Root runs it as `user`: UNPRIVILEGED by default, or root itself if that is empty, for tests.
    """
    user = UNPRIVILEGED if user is None else user
    confined: dict[str, Any] = {"cwd": "/", "env": _environment()}
    if os.geteuid() == 0 and user:
        confined |= {"user": user, "group": "nogroup", "extra_groups": []}
    return confined


def as_user_with_a_place(place: Path, user: str | None = None) -> dict[str, Any]:
    """Return the same, with a directory of ours for temporary files, which the caller removes."""
    confined = as_user(user)
    if "user" in confined:
        shutil.chown(place, confined["user"])
    return confined | {"env": confined["env"] | {"TMPDIR": str(place)}}


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
    }
