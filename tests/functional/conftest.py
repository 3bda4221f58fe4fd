"""Targets for the functional tests, real etcd, LXD and Pacemaker clusters, a real OpenStack, a simulated Juju
controller and a simulated MAAS with a real libvirt, and the check that none of them is left behind. libvirt, LXD and
Pacemaker need root, and OpenStack packages that root installs: without that the tests on them are left out, which the
header says. chosen.py says which run when."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

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
from tests.functional.chosen import LAB, NIGHTLY, QUICK, is_among
from tests.functional.forked import end_nursery
from tests.functional.juju.juju_access import REAL, user_of
from tests.functional.shared_labs import (
    SharedLab,
    look_at_etcd,
    look_at_libvirt,
    look_at_lxd,
    look_at_openstack,
)
from tippingpoint.conduct import run_state
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.targets.juju.api.access import ControllerAccess, from_store, store_directory

L = TypeVar("L")

_FAKETIME = Path(__file__).resolve().parents[2] / ".cache" / "lib" / "libfaketimeMT.so.1"
_GONE_WITHIN_S = 300.0
_ROOT = os.geteuid() == 0
_LXD_CLUSTERS = {"lxd", "new_lxd"}
_OF_LXD = {"lxd_single", *_LXD_CLUSTERS}
_GO = shutil.which("go") is not None
_BROKEN = "openstack_to_break"
_OF_OPENSTACK = {"openstack", _BROKEN}
_BROKEN_PACEMAKER = "pacemaker_to_break"
_OF_PACEMAKER = {"pacemaker", _BROKEN_PACEMAKER, "new_pacemaker"}
_OF_LIBVIRT = {"libvirt", "new_libvirt"}
_OF_ROOT = {"images", "libvirt", "lxd", "pacemaker"}
_LEFT_OUT = set[str]() if _ROOT else _OF_ROOT if is_installed() else {*_OF_ROOT, "openstack"}
_FIXTURES = {"lxd": _OF_LXD, "openstack": _OF_OPENSTACK, "pacemaker": _OF_PACEMAKER, "libvirt": _OF_LIBVIRT}
_BY_FILE = {"agent", "juju", "lab", "maas", "pacemaker", "releases", "run"}
"""Folders whose tests mostly wait."""
_FIRST = ("openstack", "lxd", "charms", "monitoring", "etcd", "agent", "run", "pacemaker", "maas", "juju")
"""What takes long is begun first, and before it what one process does alone: files of others fill the end."""
_MARKS = {
    "quick": "what plain ./scripts/test runs",
    "lab": "what labs themselves do, for CI where lab/ has changed, and nightly",
    "nightly": "what CI leaves to the night",
}
_FAILED = pytest.StashKey[int]()
_SHARED = pytest.StashKey[list[SharedLab[Any]]]()


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
    for mark, about in _MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {about}; see chosen.py")


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
    config.option.loadscopereorder = False  # they are in order
    return _ByFolder(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m chooses by what is marked here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs libvirt, LXD, OpenStack or Pacemaker, and leave it out for a user who cannot run it; mark what is
    quick, of a lab or nightly. Tests that break a shared OpenStack or Pacemaker come last in their folder."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for mark, of_mark in _FIXTURES.items():
            if of_mark & fixtures:
                item.add_marker(mark)
        for mark, chosen in (("quick", QUICK), ("lab", LAB), ("nightly", NIGHTLY)):
            if is_among(_below(item.nodeid), chosen) and not (mark == "quick" and _LXD_CLUSTERS & fixtures):
                item.add_marker(mark)
    order = {folder: place for place, folder in enumerate(_FIRST)}
    items.sort(
        key=lambda item: (
            order.get(_folder(item), len(order)),
            bool({_BROKEN, _BROKEN_PACEMAKER} & set(getattr(item, "fixturenames", ()))),
        )
    )
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
    """End shared labs with the last test of a folder: other folders follow, which may not use them."""
    if nextitem is not None and _folder(item) != _folder(nextitem):
        for lab in item.config.stash.get(_SHARED, []):
            lab.rest()


@pytest.fixture(scope="session", autouse=True)
def lab_directories() -> Iterator[list[Path]]:
    """Where labs of this session had what they ran on. Fails the session if one of them is there after its last test,
    or if anything runs that its tests started."""
    directories: list[Path] = []
    yield directories
    end_nursery()
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := [*_started(), *(str(path) for path in directories if path.exists())]:
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {', '.join(left)}")
        time.sleep(0.1)


def _started() -> Iterator[str]:
    """The command lines of what this session's tests have started and still runs. Those of what was forked are the
    nursery's."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()


class _HasDirectory(Protocol):
    directory: Path


class Share(Protocol):
    """Makes a lab that tests share."""

    def __call__(
        self, make: Callable[[], AbstractContextManager[L]], look: Callable[[L], object]
    ) -> SharedLab[L]:
        """`look` is SharedLab's."""
        ...


@pytest.fixture(scope="session")
def share(pytestconfig: pytest.Config, lab_directories: list[Path]) -> Iterator[Share]:
    """Makes labs that tests of a folder share. They end with it."""
    with contextlib.ExitStack() as labs:

        def noted(make: Callable[[], AbstractContextManager[L]]) -> Callable[[], AbstractContextManager[L]]:
            @contextlib.contextmanager
            def made() -> Generator[L]:
                with make() as lab:
                    lab_directories.append(cast(_HasDirectory, lab).directory)
                    yield lab

            return made

        def start(make: Callable[[], AbstractContextManager[L]], look: Callable[[L], object]) -> SharedLab[L]:
            failed = partial(pytestconfig.stash.get, _FAILED, 0)
            lab = labs.enter_context(SharedLab(noted(make), look, failed))
            pytestconfig.stash.setdefault(_SHARED, []).append(lab)
            return lab

        yield start


@pytest.fixture(scope="session")
def shared_etcd(share: Share) -> SharedLab[EtcdLab]:
    """The cluster of `etcd`."""
    return share(lambda: EtcdLab(members=3), look_at_etcd)


@pytest.fixture
def etcd(shared_etcd: SharedLab[EtcdLab]) -> EtcdLab:
    """A 3-member cluster shared by the tests that leave its members alone."""
    return shared_etcd.take()


@pytest.fixture
def new_etcd() -> Iterator[Callable[..., EtcdLab]]:
    """Starts clusters of the test's own, with EtcdLab's arguments; they end with the test."""
    with contextlib.ExitStack() as labs:

        def start(
            members: int = 3,
            tls: bool = False,
            auth: bool = False,
            release: str | None = None,
            pprof: bool = False,
        ) -> EtcdLab:
            return labs.enter_context(EtcdLab(members, tls, auth, release=release, pprof=pprof))

        yield start


@pytest.fixture
def etcd_private(new_etcd: Callable[..., EtcdLab]) -> EtcdLab:
    """A 3-member cluster of the test's own, whose members it may kill."""
    return new_etcd()


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


@pytest.fixture(scope="session")
def shared_lxd(share: Share) -> SharedLab[LxdLab]:
    """The cluster of `lxd`."""
    return share(lambda: _with_tiny(LxdLab(members=3)), look_at_lxd)


@pytest.fixture
def lxd(shared_lxd: SharedLab[LxdLab]) -> LxdLab:
    """A cluster of 3, with an image `tiny`, shared by the tests that leave its members alone."""
    return shared_lxd.take()


@pytest.fixture(scope="session")
def shared_lxd_single(share: Share) -> SharedLab[LxdLab]:
    """The server of `lxd_single`."""
    return share(lambda: _with_tiny(LxdLab(members=1, clustered=False)), look_at_lxd)


@pytest.fixture
def lxd_single(shared_lxd_single: SharedLab[LxdLab]) -> LxdLab:
    """A server of no cluster, with an image `tiny`, shared by the tests that leave it alone."""
    return shared_lxd_single.take()


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


@pytest.fixture(scope="session")
def shared_openstack(share: Share) -> SharedLab[OpenstackLab]:
    """The cloud of `openstack`."""
    return share(lambda: OpenstackLab(computes=3, brokers=2, tls=True), look_at_openstack)


@pytest.fixture
def openstack(shared_openstack: SharedLab[OpenstackLab]) -> OpenstackLab:
    """A cloud with all there is (3 computes, 2 brokers, TLS), shared by tests that remove what they make."""
    return shared_openstack.take()


@pytest.fixture
def openstack_to_break(openstack: OpenstackLab) -> OpenstackLab:
    """The same cloud, whose members a test may kill, and brings back."""
    return openstack


@pytest.fixture(scope="session")
def shared_pacemaker(share: Share) -> SharedLab[PacemakerLab]:
    """The cluster of `pacemaker`."""
    return share(lambda: PacemakerLab(nodes=3), PacemakerLab.is_whole)


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


@pytest.fixture(scope="session")
def shared_libvirt(share: Share) -> SharedLab[MaasLab]:
    """The region of `libvirt`."""
    return share(lambda: MaasLab(libvirt=True), look_at_libvirt)


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
def faketime() -> Path:
    """libfaketime, to be preloaded into a process whose clock a test steps; ./scripts/test fetches it."""
    if not _FAKETIME.exists():
        pytest.fail(f"{_FAKETIME}: not there: expected ./scripts/test to have fetched it")
    return _FAKETIME


@pytest.fixture
def quick_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of tests come one twentieth of a second after the other: moments need not be named long before they are."""
    monkeypatch.setattr(run_state, "lead", lambda units: 1.0)
