"""The MAAS lab with a real libvirt: machines that are defined by hand boot, phone home, and leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lab.certificates import make_certificates
from lab.control import LabError
from lab.halt import halt
from lab.maas.simulator import MaasLab
from lab.places import split
from tests.functional.maas.region_client import Region
from tests.functional.program import WITHIN_S, until
from tests.functional.traces import traces
from tests.functional.virsh import define, try_virsh, virsh

NAME, MAC = "by-hand", "52:54:00:70:74:01"


@pytest.fixture
async def region(libvirt: MaasLab) -> AsyncIterator[Region]:
    """A client of the shared region, whose machines go after the test."""
    async with Region(libvirt) as region:
        yield region
        for machine in await region.ok("GET", "machines/"):
            await region.ok("DELETE", f"machines/{machine['system_id']}/")


@pytest.fixture
def machine(libvirt: MaasLab, tmp_path: Path) -> Iterator[str]:
    """A machine that is defined by hand and off, which goes after the test."""
    define(libvirt, tmp_path, NAME, MAC)
    yield NAME
    try_virsh(libvirt, "destroy", NAME)
    virsh(libvirt, "undefine", NAME)


def _command_line(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text()
    return ""


async def enlist(region: Region, lab: MaasLab, name: str = NAME, address: str = "") -> str:
    """Enlist a machine with power by virsh, and return its system_id."""
    assert lab.libvirt is not None
    power = {"power_address": address or lab.libvirt.power_address, "power_id": name}
    fields = {"hostname": NAME, "power_type": "virsh", "power_parameters": json.dumps(power)}
    return (await region.enlist(MAC, **fields))["system_id"]


async def errors(region: Region, system_id: str) -> list[str]:
    """The texts of a machine's events that are errors or warnings."""
    found = await region.ok("GET", f"events/?op=query&level=WARNING&id={system_id}")
    return [event["description"] for event in found["events"]]


class TestLife:
    async def test_a_machine_that_is_defined_by_hand_is_commissioned_deployed_and_released(
        self, libvirt: MaasLab, region: Region, machine: str
    ) -> None:
        # given a machine of libvirt, enlisted with its MAC address and power by virsh
        system_id = await enlist(region, libvirt)
        path = f"machines/{system_id}/"
        assert virsh(libvirt, "domstate", machine) == "shut off"
        # when it is commissioned
        await region.ok("POST", f"{path}?op=commission")
        found = await region.until(system_id, "Ready")
        # then the region shows what the machine itself said, and has switched it off
        assert (found["cpu_count"], found["memory"], found["power_state"]) == (2, 160, "off")
        assert found["storage"] == pytest.approx(10 * 1024**3 / 1000**2)
        assert virsh(libvirt, "domstate", machine) == "shut off"
        # when it is deployed, then it stays on
        await region.ok("POST", f"{path}?op=deploy")
        await region.until(system_id, "Deployed")
        assert virsh(libvirt, "domstate", machine) == "running"
        assert await region.ok("GET", f"{path}?op=query_power_state") == {"state": "on"}
        # when it is released, then it is off
        await region.ok("POST", f"{path}?op=release")
        await region.until(system_id, "Ready")
        assert virsh(libvirt, "domstate", machine) == "shut off"
        assert await region.ok("GET", f"{path}?op=query_power_state") == {"state": "off"}
        assert await errors(region, system_id) == []

    async def test_a_boot_without_a_rack_controller_goes_on_when_there_is_one(
        self, libvirt: MaasLab, region: Region, machine: str
    ) -> None:
        # given a machine that is being commissioned when the only rack controller goes
        system_id = await enlist(region, libvirt)
        before = scripts_sent(libvirt)
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        libvirt.kill("rack-1")
        try:  # it gets as far as the script by which it asks the rack controller
            until(lambda: scripts_sent(libvirt) > before)
        finally:
            # when that is back
            libvirt.start("rack-1")
        # then the machine, which has asked again and again, boots
        assert (await region.until(system_id, "Ready"))["memory"] == 160

    def test_a_machine_runs_on_the_processors_of_its_target(self, tmp_path: Path) -> None:
        # given a lab that was asked to be placed, as libvirt has QEMU run everywhere by itself
        places = split(os.sched_getaffinity(0))
        with MaasLab(libvirt=True, places=places) as lab:
            define(lab, tmp_path, "placed", MAC)
            # when a machine is switched on
            virsh(lab, "start", "placed")
            threads = [
                int(task.name)
                for process in Path("/proc").glob("[0-9]*")
                if "guest=placed" in _command_line(process)
                for task in (process / "task").iterdir()
            ]
            # then all of it is there
            assert threads
            assert {one for task in threads for one in os.sched_getaffinity(task)} == set(places.target)
            virsh(lab, "destroy", "placed")
            virsh(lab, "undefine", "placed")


class TestFaults:
    async def test_a_boot_that_is_lost_fails_after_the_regions_timeout_and_the_next_one_works(
        self, libvirt: MaasLab, region: Region, machine: str
    ) -> None:
        # given a region that waits for a second, and loses every boot
        system_id = await enlist(region, libvirt)
        usual = await region.ok("GET", "maas/?op=get_config&name=node_timeout")
        await region.ok("POST", "maas/?op=set_config", name="node_timeout", value=1 / 60)
        libvirt.ask({"do": "boots", "lost": 1})
        try:
            # when a machine is commissioned
            await region.ok("POST", f"machines/{system_id}/?op=commission")
            # then it fails, while it is on and waits for a boot
            await region.until(system_id, "Failed commissioning")
            assert virsh(libvirt, "domstate", machine) == "running"
            assert "timed out" in (await errors(region, system_id))[0]
        finally:
            libvirt.ask({"do": "boots", "lost": 0})
            await region.ok("POST", "maas/?op=set_config", name="node_timeout", value=usual)
        # when it is commissioned again, with boots that work, then it boots anew
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        await region.until(system_id, "Ready")

    async def test_machines_outlive_libvirtd_which_finds_them_again(
        self, libvirt: MaasLab, region: Region, machine: str
    ) -> None:
        # given a machine that runs
        system_id = await enlist(region, libvirt)
        virsh(libvirt, "start", machine)
        before = qemu(libvirt)
        # when libvirtd is killed
        libvirt.kill("libvirtd")
        try:
            # then the machine runs on, and nobody can ask for its state
            assert qemu(libvirt) == before
            assert not {member["name"]: member["running"] for member in libvirt.members()}["libvirtd"]
            query = f"machines/{system_id}/?op=query_power_state"
            assert await region.ok("GET", query) == {"state": "error"}
            assert "failed to connect to the hypervisor" in (await errors(region, system_id))[0]
        finally:
            # when it is started again
            libvirt.start("libvirtd")
        # then it knows the machine as the one that it was
        assert await region.ok("GET", query) == {"state": "on"}
        assert qemu(libvirt) == before

    def test_a_libvirtd_starts_again_whose_end_its_host_has_not_seen(self, libvirt: MaasLab) -> None:
        """Given a host whose first process does not get to run when libvirtd is killed, as on a busy machine, then
        libvirtd starts when that gets to run."""
        assert libvirt.libvirt is not None
        host = libvirt.libvirt.daemon.host
        halt(host)
        try:
            libvirt.kill("libvirtd")
            with ThreadPoolExecutor(1) as beside:
                starting = beside.submit(libvirt.start, "libvirtd")
                until(lambda: has_pending(host, signal.SIGHUP), "it is told to start it")
                os.kill(host, signal.SIGCONT)
                starting.result()
        finally:
            os.kill(host, signal.SIGCONT)
        assert virsh(libvirt, "list", "--all", "--name") == ""

    def test_only_a_dead_libvirtd_can_be_started(self, libvirt: MaasLab) -> None:
        with pytest.raises(LabError, match="libvirtd: is running: expected a member that is dead"):
            libvirt.start("libvirtd")

    async def test_a_machine_that_libvirt_does_not_have_fails_with_its_words(
        self, libvirt: MaasLab, region: Region
    ) -> None:
        # given a machine whose power_id is none of libvirt's; when it is commissioned
        system_id = await enlist(region, libvirt, name="nobody")
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        # then it fails, and an event has what virsh said
        await region.until(system_id, "Failed commissioning")
        assert any("failed to get domain 'nobody'" in text for text in await errors(region, system_id))


class TestAccess:
    async def test_a_key_of_another_authority_is_refused(
        self, libvirt: MaasLab, region: Region, machine: str, tmp_path: Path
    ) -> None:
        # given the lab's own authority, but a client's key of another
        wrong = key_of_another(libvirt, tmp_path)
        # when virsh uses it, then it gets no connection
        refused = try_virsh(libvirt, "list", address=wrong)
        assert refused.returncode == 1
        # when the region uses it, then the machine fails, and stays off
        system_id = await enlist(region, libvirt, address=wrong)
        await region.ok("POST", f"machines/{system_id}/?op=commission")
        await region.until(system_id, "Failed commissioning")
        assert any("failed to connect to the hypervisor" in text for text in await errors(region, system_id))
        assert virsh(libvirt, "domstate", machine) == "shut off"

    def test_a_server_of_another_authority_is_not_believed(self, libvirt: MaasLab, tmp_path: Path) -> None:
        # given a client that knows another authority; when it asks
        refused = try_virsh(libvirt, "list", address=key_of_another(libvirt, tmp_path, believes=True))
        # then it does not take the server for the lab's
        assert "certificate" in refused.stderr

    def test_there_is_no_open_port_without_tls(self, libvirt: MaasLab) -> None:
        assert libvirt.libvirt is not None
        # given the sockets of the host's network; when those are looked at that take connections
        tables = [Path(f"/proc/{libvirt.libvirt.daemon.host}/net/{table}") for table in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
        listening = {int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[3] == "0A"}
        # then there is one, which asks for a certificate, and whose key is in private files
        assert listening == {16514}
        for path in (libvirt.libvirt.directory / "tls").iterdir():
            assert path.stat().st_mode & 0o077 == 0
        assert libvirt.libvirt.directory.stat().st_mode & 0o077 == 0

    def test_the_lab_says_where_libvirt_is_and_that_the_region_is_simulated(self, libvirt: MaasLab) -> None:
        assert libvirt.libvirt is not None
        # given what the lab tells
        told, facts = libvirt.describe(), libvirt.ask({"do": "facts"})
        # then libvirt is real, and how its machines run is said; the region is not
        assert facts["simulated"] is True
        assert facts["libvirt"] == {
            "version": told["libvirt"]["version"],
            "virtualization": {"kvm": "kvm", "qemu": "emulation"}[told["libvirt"]["domain_type"]],
        }
        # then its settings are those of a plan that makes machines there
        assert f"target.made.libvirt={told['libvirt']['uri']}" in libvirt.settings()
        assert f"target.made.power_address={told['libvirt']['power_address']}" in libvirt.settings()
        assert virsh(libvirt, "uri", address=told["libvirt"]["power_address"])


@pytest.mark.libvirt
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind_whatever_ends_the_lab_program(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    with _program() as (lab, told):
        # given a lab with a machine that runs
        name, address = Path(told["lab"]).parent.name, told["libvirt"]["power_address"]
        xml = tmp_path / "machine.xml"
        kind = told["libvirt"]["domain_type"]
        xml.write_text(
            f"<domain type='{kind}'><name>left</name><memory unit='MiB'>64</memory>"
            "<os><type arch='x86_64'>hvm</type></os></domain>"
        )
        subprocess.run(["virsh", "-q", "-c", told["libvirt"]["uri"], "create", xml], check=True)
        namespace = os.readlink(f"/proc/{told['libvirt']['host']}/ns/pid")
        commands = {_command(pid) for pid in _within(namespace)}
        assert {"libvirtd", "dnsmasq", "qemu-system-x86"} <= commands
        made = traces(name, address) - before
        assert {kind for kind, _what in made} == {"process", "cgroup", "link", "directory"}
        # when it ends, whatever ends it
        lab.send_signal(number)
        # then nothing of it is left
        assert lab.wait(WITHIN_S) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        until(lambda: not traces(name, address) - before and not _within(namespace))


def scripts_sent(lab: MaasLab) -> int:
    """How often a machine has fetched the script for iPXE."""
    assert lab.libvirt is not None
    return (lab.libvirt.directory / "dnsmasq.out").read_text().count("boot.ipxe to ")


def has_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits until a process gets to run."""
    (mask,) = re.findall(r"^ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def key_of_another(lab: MaasLab, directory: Path, believes: bool = False) -> str:
    """The address of the lab's libvirt with a client's key of another authority; with `believes` it is the only one."""
    assert lab.libvirt is not None
    (directory / "other").mkdir()
    (directory / "client").mkdir()
    address, _, own = lab.libvirt.power_address.partition("?pkipath=")
    made = make_certificates(directory / "other", "maas")
    ca = made.ca if believes else Path(own) / "cacert.pem"
    for name, path in (("cacert", ca), ("clientcert", made.client_cert), ("clientkey", made.client_key)):
        (directory / "client" / f"{name}.pem").symlink_to(path)
    return f"{address}?pkipath={directory / 'client'}"


def qemu(lab: MaasLab) -> set[int]:
    """The ids of the processes of the machines that run."""
    assert lab.libvirt is not None
    namespace = os.readlink(f"/proc/{lab.libvirt.daemon.host}/ns/pid")
    return {pid for pid in _within(namespace) if _command(pid).startswith("qemu")}


@contextlib.contextmanager
def _program() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The lab as a program, and what it told."""
    command = [sys.executable, "-m", "lab.maas.simulator", "--libvirt"]
    lab = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert lab.stdout is not None
        assert select.select([lab.stdout], [], [], WITHIN_S)[0], "the lab said nothing"
        yield lab, json.loads(lab.stdout.readline())
    finally:
        lab.kill()
        lab.wait()
        for stream in (lab.stdin, lab.stdout):
            assert stream is not None
            stream.close()


def _within(namespace: str) -> set[int]:
    """The processes of a PID namespace."""
    found = set[int]()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and os.readlink(process / "ns" / "pid") == namespace:
                found.add(int(process.name))
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
