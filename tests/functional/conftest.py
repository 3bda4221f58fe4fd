"""Real etcd clusters for the functional tests, and the check that none of them is left behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MARK
from tests.lab.etcd import EtcdLab

_FAKETIME = Path(__file__).resolve().parents[2] / ".cache" / "lib" / "libfaketimeMT.so.1"
_GONE_WITHIN_S = 3.0


@pytest.fixture(scope="session")
def open_labs() -> list[EtcdLab]:
    """The clusters that are meant to be running now."""
    return []


@pytest.fixture(scope="session")
def etcd(open_labs: list[EtcdLab]) -> Iterator[EtcdLab]:
    """A 3-member cluster shared by the tests that leave its members alone."""
    with EtcdLab(members=3) as lab:
        open_labs.append(lab)
        yield lab
        open_labs.remove(lab)


@pytest.fixture
def new_etcd(open_labs: list[EtcdLab], nothing_left_behind: None) -> Iterator[Callable[..., EtcdLab]]:
    """Starts clusters of the test's own, with EtcdLab's arguments; they end with the test."""
    with contextlib.ExitStack() as labs:

        def start(members: int = 3, tls: bool = False, auth: bool = False) -> EtcdLab:
            lab = labs.enter_context(EtcdLab(members, tls, auth))
            open_labs.append(lab)
            labs.callback(open_labs.remove, lab)
            return lab

        yield start


@pytest.fixture
def etcd_private(new_etcd: Callable[..., EtcdLab]) -> EtcdLab:
    """A 3-member cluster of the test's own, whose members it may kill."""
    return new_etcd()


@pytest.fixture(autouse=True)
def nothing_left_behind(open_labs: list[EtcdLab]) -> Iterator[None]:
    """Fails a test after which an etcd runs that this session's processes started and no open lab owns."""
    yield
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := session_etcds() - {pid for lab in open_labs for pid in lab.pids.values()}:
        if time.monotonic() > deadline:
            pytest.fail(f"etcd processes left behind: {sorted(left)}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def faketime() -> Path:
    """libfaketime, to be preloaded into a process whose clock a test steps; ./scripts/test fetches it."""
    if not _FAKETIME.exists():
        pytest.fail(f"{_FAKETIME}: not there: expected ./scripts/test to have fetched it")
    return _FAKETIME


def session_etcds() -> set[int]:
    """The pids of all etcd processes that descend from this test session."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found: set[int] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            if (process / "comm").read_text().strip() != "etcd":
                continue
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.add(int(process.name))
    return found
