"""What benchmarks of one side beside another share: what each took. It needs no package: a peer's own interpreter may
import it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_LOOK_EVERY_S = 0.02


def cpu_seconds() -> float:
    """CPU-seconds that this process has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(command: list[str], environment: Mapping[str, str]) -> tuple[str, float]:
    """What a command prints and the CPU-seconds that it and its children took."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=REPOSITORY)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        told = output.read()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {told[-4000:]}")
    return told, used.ru_utime + used.ru_stime


def runner_cpu(command: list[str], out: Path) -> tuple[float, Path]:
    """CPU-seconds that the runner of a run of ours takes from the begin of its only stage to its end, and the run's
    directory in `out`, which was empty. (What its worker takes, worker_cpu says: it may be gone when we look.)"""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ, cwd=REPOSITORY)
        began = _ran_when('"phase":"begin"', out, process)
        ended = _ran_when('"phase":"drain"', out, process)
        if process.wait() != 0:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)}: {output.read()[-4000:]}")
    (directory,) = (path for path in out.iterdir() if path.is_dir())
    return ended - began, directory


def _ran_when(phase: str, out: Path, process: subprocess.Popen[bytes]) -> float:
    """What a process, which is not waited for yet, had taken when a run's journal first had this."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if any(phase in journal.read_text() for journal in out.glob("*/worker-0.jsonl")):
            break
        time.sleep(_LOOK_EVERY_S)
    return ran_seconds(process.pid)


def ran_seconds(pid: int) -> float:
    """CPU-seconds that a process has taken, threads that have ended included, to the kernel's tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def worker_cpu(run: Path, begin: float, end: float) -> float:
    """CPU-seconds that the one worker of a run took between two moments of it, as its ticks say."""
    taken, since = 0.0, begin
    for line in (run / "worker-0.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "tick" and since < event["t"] <= end:
            taken += event["cpu"] * (event["t"] - since)
            since = event["t"]
    return taken
