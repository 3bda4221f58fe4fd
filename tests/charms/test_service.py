"""The agent as a service of the machine: what it may do, and what of it is where."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import pytest
from tippingpoint_charm.credentials import write_credentials
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.service import Service
from tippingpoint_charm.systemd import digest_of

from tests.charms.generators import Directory
from tests.charms.systemd import exposure, misunderstood, needs_systemd
from tippingpoint.conduct.run_state import silent_after, word_every

UNIT = "load-claimer/7"
NAME = "tippingpoint-load-claimer-7"
US = (os.getuid(), os.getgid())


@pytest.fixture
def machine(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "root")


@pytest.fixture
def service(machine: Directory) -> Service:
    return Service(machine, UNIT, 9477)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack that nobody but its owner may read, as a careful umask leaves it."""
    pack = tmp_path / "pack"
    (pack / "engine/__pycache__").mkdir(parents=True)
    (pack / "engine/__init__.py").write_text("code")
    (pack / "engine/library.so").write_text("machine code")
    (pack / "engine/__pycache__/old.pyc").write_text("bytes")
    (pack / "engine/__init__.py").chmod(0o600)
    (pack / "engine/library.so").chmod(0o700)
    (pack / "engine").chmod(0o700)
    return pack


def unit_file(machine: Machine, suffix: str) -> Path:
    return machine.path(f"/etc/systemd/system/{NAME}{suffix}")


class TestCopy:
    def test_the_agents_user_can_read_it_and_only_root_can_change_it(
        self, machine: Directory, service: Service, pack: Path
    ) -> None:
        copy = machine.path(f"/opt/tippingpoint/{service.copy(pack)}")
        modes = {str(path.relative_to(copy)): stat.S_IMODE(path.stat().st_mode) for path in copy.rglob("*")}
        assert modes == {"engine": 0o755, "engine/__init__.py": 0o644, "engine/library.so": 0o755}
        assert stat.S_IMODE(copy.stat().st_mode) == 0o755

    def test_a_copy_that_was_cut_off_is_not_taken_for_one(
        self, machine: Directory, service: Service, pack: Path
    ) -> None:
        half = machine.path(f"/opt/tippingpoint/.{digest_of(pack)}")
        half.mkdir(parents=True)
        (half / "stale.py").write_text("")
        copy = machine.path(f"/opt/tippingpoint/{service.copy(pack)}")
        assert not (copy / "stale.py").exists()
        assert (copy / "engine/__init__.py").read_text() == "code"
        assert not half.exists()

    def test_packs_are_told_apart_by_names_and_contents_alone(self, pack: Path) -> None:
        before = digest_of(pack)
        assert re.fullmatch("[0-9a-f]{16}", before)
        (pack / "engine/__pycache__/new.pyc").write_text("other")
        os.utime(pack / "engine/__init__.py", (0, 0))
        assert digest_of(pack) == before
        (pack / "engine/__init__.py").rename(pack / "engine/other.py")
        renamed = digest_of(pack)
        (pack / "engine/other.py").write_text("changed")
        assert len({before, renamed, digest_of(pack)}) == 3


class TestUnitFiles:
    @pytest.fixture
    def installed(self, machine: Directory, service: Service, pack: Path) -> Directory:
        service.install(service.copy(pack))
        return machine

    def test_they_are_for_systemd_alone_to_change(self, installed: Directory) -> None:
        suffixes = (".service", "-wake.path", "-wake.timer", "-wake.service")
        for suffix in suffixes:
            assert stat.S_IMODE(unit_file(installed, suffix).stat().st_mode) == 0o644
        assert len([*unit_file(installed, ".service").parent.iterdir()]) == len(suffixes)

    @needs_systemd
    def test_systemd_rates_its_exposure_under_3(self, installed: Directory) -> None:
        assert exposure(unit_file(installed, ".service")) < 3

    @needs_systemd
    def test_systemd_understands_them(self, installed: Directory, tmp_path: Path) -> None:
        """Every line: what systemd does not know it says, and ignores."""
        suffixes = (".service", "-wake.path", "-wake.timer", "-wake.service")
        units = {f"{NAME}{suffix}": unit_file(installed, suffix).read_text() for suffix in suffixes}
        assert misunderstood(units, tmp_path / "verified") == []

    def test_the_charm_is_woken_as_its_unit(self, installed: Directory) -> None:
        assert (
            f"ExecStart=/usr/bin/juju-exec -u {UNIT} 'JUJU_DISPATCH_PATH=hooks/agent_changed ./dispatch'\n"
            in unit_file(installed, "-wake.service").read_text()
        )

    def test_a_hook_that_never_comes_is_asked_for_again_before_the_unit_is_taken_for_silent(
        self, installed: Machine
    ) -> None:
        given_up = re.findall(
            r"^TimeoutStartSec=(\d+)$", unit_file(installed, "-wake.service").read_text(), re.M
        )
        assert 2 * int(given_up[0]) + word_every(2) < silent_after(2)

    def test_nothing_of_a_secret_is_in_the_command_line(self, installed: Directory) -> None:
        (command,) = re.findall("^ExecStart=.*$", unit_file(installed, ".service").read_text(), re.MULTILINE)
        assert re.findall(r"--(\w+)", command) == ["state", "socket", "wake", "unit", "metrics"]


class TestMachine:
    def test_a_program_that_fails_says_why_in_a_line(self) -> None:
        with pytest.raises(MachineProblem, match=r"^sh -c .*: oh no$"):
            Machine().run("sh", "-c", "echo well >&2; echo oh no >&2; exit 3")

    def test_a_program_that_is_silent_says_its_exit_code(self) -> None:
        with pytest.raises(MachineProblem, match=r"^false: exit code 1$"):
            Machine().run("false")

    def test_no_program_at_all(self) -> None:
        with pytest.raises(MachineProblem, match=r"^no-such-program: No such file or directory$"):
            Machine().run("no-such-program")

    def test_units_that_accept_no_connection_are_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            found = Machine().unanswered({"a/0": "127.0.0.1", "a/1": "127.0.0.2"}, port)
        assert found == {"a/1": "no answer at 127.0.0.2: Connection refused"}
        assert Machine().unanswered({}, port) == {}

    def test_users(self) -> None:
        assert Machine().user("root") == (0, 0)
        assert Machine().user("no-such-user") is None


class TestCredentials:
    def test_they_are_the_users_own(self, tmp_path: Path) -> None:
        write_credentials(tmp_path, {"a.yaml": "secret: 1\n"}, US)
        path = tmp_path / "credentials/a.yaml"
        assert path.read_text() == "secret: 1\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [*path.parent.iterdir()] == [path]

    def test_what_is_right_is_left_alone_and_what_is_not_replaced(self, tmp_path: Path) -> None:
        write_credentials(tmp_path, {"a": "1", "b": "1"}, US)
        before = [(tmp_path / "credentials" / name).stat().st_ino for name in "ab"]
        write_credentials(tmp_path, {"a": "1", "b": "2"}, US)
        after = [(tmp_path / "credentials" / name).stat().st_ino for name in "ab"]
        assert before[0] == after[0]
        assert before[1] != after[1]
        assert (tmp_path / "credentials/b").read_text() == "2"

    def test_a_link_in_a_files_place_leads_nowhere(self, tmp_path: Path) -> None:
        """Given an agent's user who puts a link there, what it leads to keeps its content, mode and owner."""
        outside = tmp_path / "passwd"
        outside.write_text("root")
        outside.chmod(0o644)
        (tmp_path / "state/credentials").mkdir(parents=True)
        for name in ("a", ".a.new"):
            (tmp_path / "state/credentials" / name).symlink_to(outside)
        write_credentials(tmp_path / "state", {"a": "ours"}, US)
        assert outside.read_text() == "root"
        assert stat.S_IMODE(outside.stat().st_mode) == 0o644
        assert not (tmp_path / "state/credentials/a").is_symlink()
        assert (tmp_path / "state/credentials/a").read_text() == "ours"

    @pytest.mark.parametrize("name", ["state", "credentials"])
    def test_a_link_in_a_directorys_place_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "elsewhere/credentials").mkdir(parents=True)
        state = tmp_path / "state"
        if name == "state":
            state.symlink_to(tmp_path / "elsewhere")
        else:
            state.mkdir()
            (state / "credentials").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            write_credentials(state, {"a": "ours"}, US)
        assert [path.name for path in (tmp_path / "elsewhere").rglob("*")] == ["credentials"]
