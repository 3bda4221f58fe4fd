"""Asks the engine for reports, in a process without privileges: what units sent is no input to trust, and the
engine's numerics have no place in a hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tippingpoint.collect import WORSE
from tippingpoint.collect.runs import StoredRun
from tippingpoint.errors import UserError

SECONDS = 45.0
"""How long an action waits for the engine: `juju run` itself gives up after 60 s."""
UNPRIVILEGED = "nobody"
_REFUSED = 2
"""The exit code for bad input (tippingpoint.cli)."""


def write(path: Path, do: str, runs: Sequence[StoredRun], **asked: Any) -> bool:
    """Have the engine's answer in a file; True when a comparison found something worse.

    UserError with the engine's own line where it refuses, or one that says that it took too long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as answer:
        try:
            ended = subprocess.run(
                _COMMAND,
                input=_question(do, runs, asked),
                stdout=answer,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
                **_confined(),
            )
        except subprocess.TimeoutExpired:
            fresh.unlink()
            names = ", ".join(run.id for run in runs)
            raise UserError(
                "run", names, f"a run that is read in {SECONDS:.0f} s; try again, or export it"
            ) from None
    if ended.returncode not in (0, WORSE):
        fresh.unlink()
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        line = said[-1].removeprefix("tippingpoint: ") if said else f"exit code {ended.returncode}"
        raise _Refused(line if ended.returncode == _REFUSED else f"the engine failed: {line[:300]}")
    fresh.replace(path)
    return ended.returncode == WORSE


def judge(run: StoredRun) -> None:
    """Have the engine write what the run came to into its verdict_file, some seconds after this returned."""
    with tempfile.TemporaryFile() as question, run.verdict_file.open("wb") as answer:
        question.write(_question("judge", [run], {}))
        question.seek(0)
        subprocess.Popen(
            _COMMAND,
            stdin=question,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **_confined(),
        )


class _Refused(UserError):
    """A line that the engine made already."""

    def __init__(self, line: str) -> None:
        Exception.__init__(self, line)


_COMMAND = [sys.executable, "-m", "tippingpoint.collect"]


def _question(do: str, runs: Sequence[StoredRun], asked: Mapping[str, Any]) -> bytes:
    return json.dumps({"do": do, "runs": [run.as_text() for run in runs], **asked}).encode()


def _confined() -> dict[str, Any]:
    """How the engine's process runs: as nobody in particular, with nothing of ours but the modules."""
    confined: dict[str, Any] = {
        "cwd": "/",
        "env": {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",
        },
    }
    if os.geteuid() == 0 and UNPRIVILEGED:
        confined |= {"user": UNPRIVILEGED, "group": "nogroup", "extra_groups": []}
    return confined
