"""A worker's process: it runs the runner's own code, and what it says first is heard, however early it says it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tippingpoint.errors import Refused
from tippingpoint.plan.read import parse_plan
from tippingpoint.play.interruption import Interruption
from tippingpoint.play.messages import Message, Refusal
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.play.worker import Job
from tippingpoint.play.worker_pool import WorkerPool
from tippingpoint.play.worker_process import Gone, WorkerProcess, opened, start_worker
from tippingpoint.rundir.manifest import Manifest, TargetEntry


def a_job_that_is_refused(directory: Path) -> Job:
    """Its worker names a file that is not there as soon as it has read the plan."""
    text = "{name: p, target: {credentials: /nonexistent/etcd.yaml}, stages: [{leases: 1}]}"
    return Job(
        plan=parse_plan(text),
        directory=directory,
        rescue=directory / "rescue",
        name="0",
        workspace={"prefix": "/p/", "first_lease_id": 1},
        started_wall=time.time(),
        started=time.monotonic(),
    )


async def test_a_worker_that_spoke_before_it_was_listened_to_is_heard(tmp_path: Path) -> None:
    spoke = asyncio.Event()

    def listen(worker: WorkerProcess, message: Message | Gone) -> None:
        if isinstance(message, Refusal):
            spoke.set()

    # given a worker that has said that it cannot begin
    worker = await start_worker(a_job_that_is_refused(tmp_path), listen)
    await spoke.wait()
    # when its opening is waited for only then, then that is known
    with pytest.raises(Refused, match=r"etcd\.yaml"):
        await opened(worker)
    await worker.ended(60.0)


async def test_a_worker_that_refused_and_ended_is_not_one_that_was_cut(tmp_path: Path) -> None:
    # given a run whose worker refuses its job
    record = Record("p", tmp_path, "the-run", RunnerEvents())
    record.make_directory()
    record.open(Manifest(id="the-run", title="p", target=TargetEntry(kind="etcd"), started=0.0))
    pool = WorkerPool(record, Interruption(), RunnerEvents(), lambda worker, tick: None)
    with pytest.raises(Refused, match=r"etcd\.yaml"):
        await pool.open([a_job_that_is_refused(record.directory)])
    # when it is gone before its runner gets to telling it to end
    await pool.ended(60.0)
    # then nothing says that it was lost
    assert "worker-cut" not in (record.directory / "events.jsonl").read_text()
    assert [worker.status for worker in record.manifest.workers] == ["running"]


async def test_a_worker_runs_the_code_of_its_runner_wherever_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given other programs of this name where the runner was started, and in the user's own PYTHONPATH
    for place in ("here", "elsewhere"):
        (tmp_path / place / "tippingpoint").mkdir(parents=True)
        (tmp_path / place / "tippingpoint/__init__.py").write_text("raise SystemExit\n")
    (tmp_path / "elsewhere/sitecustomize.py").write_text("open('found', 'w')\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    # when a worker is started, then it is one of the runner's own, which reads its job
    worker = await start_worker(a_job_that_is_refused(tmp_path), lambda worker, message: None)
    with pytest.raises(Refused, match=r"etcd\.yaml"):
        await opened(worker)
    await worker.ended(60.0)
    # and what else is in the user's PYTHONPATH is found
    assert (tmp_path / "here/found").exists()
