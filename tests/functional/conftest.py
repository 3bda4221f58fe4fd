"""Targets for the functional tests, real etcd, LXD and Pacemaker clusters, a real OpenStack, a simulated Juju
controller and a simulated MAAS with a real libvirt, and the check that none of them is left behind. libvirt, LXD and
Pacemaker need root, and OpenStack packages that root installs: without that the tests on them are left out, which the
header says. quick.py has the tests that plain
`./scripts/test` runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import orjson
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from lab.lxd.cluster import LxdLab
from lab.maas.simulator import MaasLab
from lab.openstack.cloud import OpenstackLab
from lab.openstack.programs import is_installed
from lab.pacemaker.cluster import PacemakerLab
from tests.conftest import MARK
from tests.functional.juju.juju_access import REAL, user_of
from tests.functional.quick import is_quick
from tests.functional.shared_labs import (
    SharedLab,
    look_at_etcd,
    look_at_libvirt,
    look_at_lxd,
    look_at_openstack,
)
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.targets.juju.api.access import ControllerAccess, from_store, store_directory
from tippingpoint.units import shared_run

T = TypeVar("T")
D = TypeVar("D", bound="_WithDirectory")

_FAKETIME = Path(__file__).resolve().parents[2] / ".cache" / "lib" / "libfaketimeMT.so.1"
_GONE_WITHIN_S = 300.0
_ROOT = os.geteuid() == 0
_OF_LXD = {"lxd", "lxd_single", "new_lxd"}
_GO = shutil.which("go") is not None
_BROKEN = "openstack_to_break"
_OF_OPENSTACK = {"openstack", _BROKEN}
_BROKEN_PACEMAKER = "pacemaker_to_break"
_OF_PACEMAKER = {"pacemaker", _BROKEN_PACEMAKER, "new_pacemaker"}
_OF_LIBVIRT = {"libvirt", "new_libvirt"}
_OF_ROOT = {"images", "libvirt", "lxd", "pacemaker"}
_LEFT_OUT = set[str]() if _ROOT else _OF_ROOT if is_installed() else {*_OF_ROOT, "openstack"}
_FIXTURES = {"lxd": _OF_LXD, "openstack": _OF_OPENSTACK, "pacemaker": _OF_PACEMAKER, "libvirt": _OF_LIBVIRT}
_BY_FILE = {"juju", "maas", "pacemaker", "releases", "run"}
"""Folders whose tests mostly wait."""
_FAILED = pytest.StashKey[int]()
_SHARED_ETCD = pytest.StashKey[SharedLab[EtcdLab]]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of tests on these targets. Those that use one of the fixtures get them by themselves.

    A shell has what it starts in the background ignore Ctrl-C, and so would the programs that tests interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "images: mounts a release that is kept as an image, and therefore needs root"
    )
    config.addinivalue_line("markers", "libvirt: needs libvirt, and therefore root")
    config.addinivalue_line("markers", "lxd: needs LXD, and therefore root")
    config.addinivalue_line("markers", "openstack: needs OpenStack's packages, which root installs")
    config.addinivalue_line("markers", "pacemaker: needs Pacemaker, and therefore root")
    config.addinivalue_line("markers", "quick: what plain ./scripts/test runs; see quick.py")


def pytest_report_header() -> str | None:
    """Say what is left out."""
    said = [f"not root: the tests on {' and '.join(sorted(_LEFT_OUT))} are left out"] if _LEFT_OUT else []
    return (
        "\n".join([*said, *([] if _GO else ["no go: the tests on etcd 3.6, which is built, are left out"])])
        or None
    )


def _below(test: str) -> str:
    """A test's id, as it is below this folder."""
    return test.partition("tests/functional/")[2]


def _folder(item: pytest.Item) -> str:
    return _below(item.nodeid).partition("/")[0]


class _ByFolder(LoadScopeScheduling):
    """Gives all tests of a folder, which share its labs, to one process of pytest-xdist. Those of folders that mostly
    wait go by file: each process has a lab of its own."""

    def _split_scope(self, nodeid: str) -> str:
        folder, _, test = _below(nodeid).partition("/")
        return test.partition("::")[0] if folder in _BY_FILE else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFolder:
    """Share out tests by folder. (--dist loadgroup groups nothing under pytest 9.2.)"""
    return _ByFolder(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by what is marked here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs libvirt, LXD, OpenStack or Pacemaker, and leave it out for a user who cannot run it; mark what is
    quick. Tests that break a shared OpenStack or Pacemaker come last."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for mark, of_mark in _FIXTURES.items():
            if of_mark & fixtures:
                item.add_marker(mark)
        if is_quick(_below(item.nodeid), fixtures):
            item.add_marker("quick")
    items.sort(key=lambda item: bool({_BROKEN, _BROKEN_PACEMAKER} & set(getattr(item, "fixturenames", ()))))
    out = [item for item in items if any(item.get_closest_marker(mark) for mark in _LEFT_OUT)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count what fails."""
    report = yield
    if report.failed:
        item.config.stash[_FAILED] = item.config.stash.get(_FAILED, 0) + 1
    return report


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared etcd with the last test of a folder: tests of many folders use it, and others follow them."""
    if nextitem is not None and _folder(item) != _folder(nextitem):
        shared = item.config.stash.get(_SHARED_ETCD, None)
        if shared is not None:
            shared.rest()


@pytest.fixture(scope="session")
def failed(request: pytest.FixtureRequest) -> Callable[[], int]:
    """Tells how many tests have failed so far, or their setup or teardown."""
    return lambda: request.config.stash.get(_FAILED, 0)


@pytest.fixture(scope="session")
def open_labs() -> list[EtcdLab]:
    """The clusters that are meant to be running now."""
    return []


@pytest.fixture(scope="session")
def shared_etcd(
    open_labs: list[EtcdLab], failed: Callable[[], int], pytestconfig: pytest.Config
) -> Iterator[SharedLab[EtcdLab]]:
    """The cluster of `etcd`, which lasts for a folder."""

    @contextlib.contextmanager
    def make() -> Generator[EtcdLab]:
        with EtcdLab(members=3) as lab:
            open_labs.append(lab)
            yield lab
            open_labs.remove(lab)

    with SharedLab(make, look_at_etcd, failed) as shared:
        pytestconfig.stash[_SHARED_ETCD] = shared
        yield shared


@pytest.fixture
def etcd(shared_etcd: SharedLab[EtcdLab]) -> EtcdLab:
    """A 3-member cluster shared by the tests that leave its members alone."""
    return shared_etcd.take()


@pytest.fixture
def new_etcd(open_labs: list[EtcdLab], nothing_left_behind: None) -> Iterator[Callable[..., EtcdLab]]:
    """Starts clusters of the test's own, with EtcdLab's arguments; they end with the test."""
    with contextlib.ExitStack() as labs:

        def start(
            members: int = 3,
            tls: bool = False,
            auth: bool = False,
            release: str | None = None,
            pprof: bool = False,
        ) -> EtcdLab:
            lab = labs.enter_context(EtcdLab(members, tls, auth, release=release, pprof=pprof))
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
    _expect_gone(
        "etcd processes", lambda: session_etcds() - {pid for lab in open_labs for pid in lab.pids.values()}
    )


@pytest.fixture(autouse=True)
def events_are_sound(tmp_path: Path) -> Iterator[None]:
    """Fails a test after which a journal has an event that readers would take for damaged."""
    yield
    for file in filter(Path.is_file, tmp_path.rglob("*.jsonl")):  # a pipe in the place of one would not end
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(orjson.JSONDecodeError):  # a crash may have cut the last one
                event = orjson.loads(line)
                assert not (isinstance(event, dict) and "event" in event) or is_sound(event), event


@pytest.fixture(scope="session")
def juju() -> Iterator[JujuLab]:
    """A simulated controller shared by the tests that leave its servers alone."""
    with JujuLab() as lab:
        yield lab


@pytest.fixture(scope="session")
def access(request: pytest.FixtureRequest) -> ControllerAccess:
    """The administrator of the real controller that tests are to run on, or else of the shared simulated one."""
    if REAL:
        return from_store(REAL, store_directory())
    return user_of(request.getfixturevalue("juju"))


@pytest.fixture
def new_juju() -> Iterator[Callable[..., JujuLab]]:
    """Starts simulated controllers of the test's own, with JujuLab's arguments; they end with the test."""
    with contextlib.ExitStack() as labs:
        yield lambda *given, **named: labs.enter_context(JujuLab(*given, **named))


@pytest.fixture(scope="session", autouse=True)
def no_simulator_left_behind() -> Iterator[None]:
    """Fails the session after whose last test a simulated controller or region of it still runs."""
    yield
    _expect_gone(
        "simulators", lambda: session_processes(b"lab.juju.process") | session_processes(b"lab.maas.process")
    )


@pytest.fixture(scope="session")
def shared_lxd(failed: Callable[[], int]) -> Iterator[SharedLab[LxdLab]]:
    """The cluster of `lxd`."""
    with SharedLab(lambda: _with_tiny(LxdLab(members=3)), look_at_lxd, failed) as shared:
        yield shared


@pytest.fixture
def lxd(shared_lxd: SharedLab[LxdLab]) -> LxdLab:
    """A cluster of 3, with an image `tiny`, shared by the tests that leave its members alone."""
    return shared_lxd.take()


@pytest.fixture(scope="session")
def shared_lxd_single(failed: Callable[[], int]) -> Iterator[SharedLab[LxdLab]]:
    """The server of `lxd_single`."""
    with SharedLab(lambda: _with_tiny(LxdLab(members=1, clustered=False)), look_at_lxd, failed) as shared:
        yield shared


@pytest.fixture
def lxd_single(shared_lxd_single: SharedLab[LxdLab]) -> LxdLab:
    """A server of no cluster, with an image `tiny`, shared by the tests that leave it alone."""
    return shared_lxd_single.take()


class _WithDirectory(Protocol):
    directory: Path


@contextlib.contextmanager
def _noted(lab: AbstractContextManager[D], directories: list[Path]) -> Generator[D]:
    """A lab, whose directory is noted once it has one."""
    with lab as running:
        directories.append(running.directory)
        yield running


@contextlib.contextmanager
def _with_tiny(lab: LxdLab) -> Generator[LxdLab]:
    with lab:
        lab.image("tiny")
        yield lab


@pytest.fixture
def new_lxd() -> Iterator[Callable[..., LxdLab]]:
    """Starts LXD of the test's own, with LxdLab's arguments; all of them end with the test."""
    with contextlib.ExitStack() as labs:
        yield lambda *given, **named: labs.enter_context(LxdLab(*given, **named))


@pytest.fixture(scope="session", autouse=True)
def no_lxd_left_behind() -> Iterator[None]:
    """Fails the session after whose last test an LXD of it still runs."""
    yield
    _expect_gone(
        "LXD processes",
        lambda: {pid for pid in _session_pids() if _read(pid, "comm").strip() in (b"lxd", b"incusd")},
    )


@pytest.fixture(scope="session")
def openstack_directories() -> list[Path]:
    """Where the OpenStack labs of this session had what they run on."""
    return []


@pytest.fixture(scope="session")
def shared_openstack(
    openstack_directories: list[Path], failed: Callable[[], int]
) -> Iterator[SharedLab[OpenstackLab]]:
    """The cloud of `openstack`."""

    def make() -> AbstractContextManager[OpenstackLab]:
        return _noted(OpenstackLab(computes=3, brokers=2, tls=True), openstack_directories)

    with SharedLab(make, look_at_openstack, failed) as shared:
        yield shared


@pytest.fixture
def openstack(shared_openstack: SharedLab[OpenstackLab]) -> OpenstackLab:
    """A cloud with all there is (3 computes, 2 brokers, TLS), shared by tests that remove what they make."""
    return shared_openstack.take()


@pytest.fixture
def openstack_to_break(openstack: OpenstackLab) -> OpenstackLab:
    """The same cloud, whose members a test may kill, and brings back."""
    return openstack


@pytest.fixture(scope="session", autouse=True)
def no_openstack_left_behind(openstack_directories: list[Path]) -> Iterator[None]:
    """Fails the session after whose last test something of an OpenStack lab of it still runs, or its directory is
    there."""
    yield
    _expect_gone("processes of OpenStack labs", _session_lab_processes)
    _expect_gone("directories", lambda: {path for path in openstack_directories if path.exists()})


@pytest.fixture(scope="session")
def shared_pacemaker(failed: Callable[[], int]) -> Iterator[SharedLab[PacemakerLab]]:
    """The cluster of `pacemaker`; no directory of it is left behind by the session."""
    directories: list[Path] = []
    with SharedLab(
        lambda: _noted(PacemakerLab(nodes=3), directories), PacemakerLab.is_whole, failed
    ) as shared:
        yield shared
    _expect_gone("directories", lambda: {path for path in directories if path.exists()})


@pytest.fixture
def pacemaker(shared_pacemaker: SharedLab[PacemakerLab]) -> PacemakerLab:
    """A cluster of 3 nodes with fencing, shared by tests that leave its nodes alone and remove what they make."""
    return shared_pacemaker.take()


@pytest.fixture
def pacemaker_to_break(shared_pacemaker: SharedLab[PacemakerLab]) -> Iterator[PacemakerLab]:
    """The same cluster, whose nodes a test may kill. One that a test leaves broken is replaced for the next test."""
    yield shared_pacemaker.take()
    shared_pacemaker.end_if_broken()


@pytest.fixture
def new_pacemaker() -> Iterator[Callable[..., PacemakerLab]]:
    """Starts clusters of the test's own, with PacemakerLab's arguments; all of them end with the test."""
    with contextlib.ExitStack() as labs:
        yield lambda *given, **named: labs.enter_context(PacemakerLab(*given, **named))


@pytest.fixture(scope="session", autouse=True)
def no_pacemaker_left_behind() -> Iterator[None]:
    """Fails the session after whose last test a daemon of Pacemaker or Corosync of it still runs."""
    yield
    _expect_gone(
        "Pacemaker's processes",
        lambda: {
            pid for pid in _session_pids() if _read(pid, "comm").startswith((b"corosync", b"pacemaker"))
        },
    )


@pytest.fixture(scope="session")
def shared_libvirt(failed: Callable[[], int]) -> Iterator[SharedLab[MaasLab]]:
    """The region of `libvirt`; no directory of it is left behind by the session."""
    directories: list[Path] = []
    with SharedLab(lambda: _noted(MaasLab(libvirt=True), directories), look_at_libvirt, failed) as shared:
        yield shared
    _expect_gone("directories", lambda: {path for path in directories if path.exists()})


@pytest.fixture
def libvirt(shared_libvirt: SharedLab[MaasLab]) -> MaasLab:
    """A simulated MAAS with a real libvirt, shared by tests that remove what they make and start what they kill."""
    return shared_libvirt.take()


@pytest.fixture
def new_libvirt() -> Iterator[Callable[..., MaasLab]]:
    """Starts a simulated MAAS with a real libvirt of the test's own, with MaasLab's arguments; all of them end with the
    test."""
    with contextlib.ExitStack() as labs:
        yield lambda **named: labs.enter_context(MaasLab(libvirt=True, **named))


@pytest.fixture(scope="session")
def background_runs() -> set[int]:
    """The pids of programs that are meant to outlast the test that started them."""
    return set()


@pytest.fixture(autouse=True)
def no_run_left_behind(background_runs: set[int]) -> Iterator[None]:
    """Fails a test that leaves a run or a worker going, which is ended, so that the next one is not disturbed."""
    yield
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := {
        pid
        for pid in session_processes(b"tippingpoint") | session_processes(b"tippingpoint.run.worker")
        if pid not in background_runs and parent(pid) not in background_runs
    }:
        if time.monotonic() > deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pytest.fail(f"runs left behind: {sorted(left)}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def faketime() -> Path:
    """libfaketime, to be preloaded into a process whose clock a test steps; ./scripts/test fetches it."""
    if not _FAKETIME.exists():
        pytest.fail(f"{_FAKETIME}: not there: expected ./scripts/test to have fetched it")
    return _FAKETIME


def _expect_gone(what: str, left: Callable[[], set[T]]) -> None:
    """Fail a test, or a session, after which something is left."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while there := left():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} left behind: {sorted(map(str, there))}")
        time.sleep(0.05)


def session_etcds() -> set[int]:
    """The pids of all etcd processes that descend from this test session."""
    return {pid for pid in _session_pids() if _read(pid, "comm").strip() == b"etcd"}


def session_processes(module: bytes) -> set[int]:
    """The pids of the processes of this test session that run a Python module (python -m)."""
    return {pid for pid in _session_pids() if module in _read(pid, "cmdline").split(b"\0")}


def _session_lab_processes() -> set[int]:
    """The pids of the processes of this test session whose home is the directory of a lab, as OpenStack's and its
    brokers' is."""
    return {
        pid
        for pid in _session_pids()
        if any(
            line.startswith(b"HOME=") and b"/tippingpoint-lab-" in line
            for line in _read(pid, "environ").split(b"\0")
        )
    }


def parent(pid: int) -> int:
    """The pid of a process's parent; 0 when the process has ended."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _session_pids() -> Iterator[int]:
    mark = f"{MARK}={os.environ[MARK]}".encode()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and mark in _read(int(process.name), "environ").split(b"\0"):
            yield int(process.name)


def _read(pid: int, name: str) -> bytes:
    """A file of a process; nothing when it has ended, or is somebody else's."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


@pytest.fixture
def quick_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of tests come one twentieth of a second after the other: moments need not be named long before they are."""
    monkeypatch.setattr(shared_run, "lead", lambda units: 1.0)
