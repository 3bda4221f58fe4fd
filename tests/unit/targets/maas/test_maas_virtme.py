"""Machines made with libvirt: what its XML says, what of a plan is refused, and how many machines fit on a server."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.targets.maas.names import item_of, machine_name
from tippingpoint.targets.maas.plan import MaasTarget, Machines
from tippingpoint.targets.maas.virtme import link
from tippingpoint.targets.maas.virtme.definitions import (
    Card,
    disk_name,
    machine_xml,
    pool_path,
    pool_xml,
    probe_xml,
    uuid_of,
    volume_xml,
)
from tippingpoint.targets.maas.virtme.keys import check_key
from tippingpoint.targets.maas.virtme.link import Libvirt
from tippingpoint.targets.maas.virtme.probe import TURNS, advertised, boot_sector
from tippingpoint.targets.maas.virtme.server import OVERHEAD, WRITTEN, fitting, reach
from tippingpoint.workloads.spawn.target import Item

PREFIX, MARK = "tp0123abcd", "tippingpoint the-run"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN3SDMM7bNjN1T0lTJlWdyvXVOOIGmDTxsIDIzd0IL9d"
ADDRESS = "qemu+ssh://root@10.0.0.5/system"

texts = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc", "Cn")), min_size=1)
macs = st.binary(min_size=6, max_size=6).map(lambda mac: mac.hex(":"))
cards = st.builds(Card, mac=macs, link=st.sampled_from(("network", "bridge", "openvswitch")), name=texts)


def virtme(**named: Any) -> Virtme:
    return Virtme.model_validate({"kind": "virtme", "power_address": ADDRESS} | named)


def found(element: ElementTree.Element, path: str) -> ElementTree.Element:
    one = element.find(path)
    assert one is not None, path
    return one


class TestDefinitions:
    @given(
        mark=texts,
        domain=st.sampled_from(("kvm", "qemu")),
        cpu=st.integers(1, 1024),
        memory=st.integers(1 << 20, 1 << 45),
        linked=st.lists(cards, min_size=1, max_size=16),
        disks=st.integers(0, 32),
        item=st.builds(Item, group=st.integers(0, 2000), number=st.integers(0, 20000)),
    )
    def test_a_machine_is_what_the_plan_says(
        self, mark: str, domain: Any, cpu: int, memory: int, linked: list[Card], disks: int, item: Item
    ) -> None:
        # given a machine of any size; when its XML is read
        name = machine_name(PREFIX, item)
        paths = [f"{pool_path(PREFIX)}/{disk_name(name, number)}" for number in range(disks)]
        read = ElementTree.fromstring(machine_xml(name, mark, domain, cpu, memory, linked, paths))
        # then it has the run's name and mark, by which it is found again
        assert item_of(PREFIX, read.findtext("name")) == item
        assert (read.findtext("description"), read.findtext("uuid")) == (mark, uuid_of(mark, name))
        # and its size
        assert (read.get("type"), read.findtext("vcpu")) == (domain, str(cpu))
        assert (found(read, "memory").attrib, read.findtext("memory")) == ({"unit": "bytes"}, str(memory))
        # and an interface for each network, which is linked with what that is on the server
        interfaces = read.findall("devices/interface")
        assert [found(each, "mac").get("address") for each in interfaces] == [card.mac for card in linked]
        for interface, card in zip(interfaces, linked, strict=True):
            kind = "network" if card.link == "network" else "bridge"
            assert (interface.get("type"), found(interface, "source").attrib) == (kind, {kind: card.name})
            port = interface.find("virtualport")
            assert (port is not None and port.get("type") == "openvswitch") == (card.link == "openvswitch")
        # and its disks, under the names that Linux gives them
        places = [
            (found(disk, "source").get("file"), found(disk, "target").get("dev"))
            for disk in read.iter("disk")
        ]
        assert [path for path, _ in places] == paths
        assert [device for _, device in places] == [
            "vd" + ("a" if number >= 26 else "") + chr(ord("a") + number % 26) for number in range(disks)
        ]
        # and it boots from the first network, and then from the first disk
        order = {
            found(each, "boot").get("order"): each for each in read.iter() if each.find("boot") is not None
        }
        assert order["1"] is interfaces[0]
        assert set(order) == ({"1", "2"} if disks else {"1"})
        assert not disks or found(order["2"], "source").get("file") == paths[0]

    @given(size=st.integers(1 << 20, 1 << 50))
    def test_a_disk_takes_no_more_than_is_written(self, size: int) -> None:
        read = ElementTree.fromstring(volume_xml("disk", size))
        assert [read.findtext(tag) for tag in ("name", "capacity", "allocation")] == ["disk", str(size), "0"]
        assert found(read, "target/format").get("type") == "qcow2"

    def test_disks_of_one_machine_are_not_anothers(self) -> None:
        """The tenth machine's number begins with that of the first: a disk's name tells them apart."""
        first, tenth = machine_name(PREFIX, Item(0, 1000)), machine_name(PREFIX, Item(0, 10000))
        assert tenth.startswith(first)
        assert not disk_name(tenth, 0).startswith(f"{first}-")

    def test_a_pool_is_known_by_the_run(self) -> None:
        read = ElementTree.fromstring(pool_xml(PREFIX, MARK))
        assert read.findtext("uuid") == uuid_of(MARK, PREFIX) != uuid_of("tippingpoint other", PREFIX)
        assert read.findtext("target/path") == f"/var/lib/libvirt/images/{PREFIX}"

    def test_the_probe_is_gone_when_it_is_reset(self) -> None:
        read = ElementTree.fromstring(probe_xml(f"{PREFIX}-probe", MARK, "kvm", "/disk"))
        assert read.findtext("on_reboot") == "destroy"
        assert read.findtext("description") == MARK


class TestProbe:
    def test_the_sector_is_laid_out_as_its_code_says(self) -> None:
        # given the sector that firmware loads at 0x7c00
        sector = boot_sector()
        # then the jump into protected mode goes to the loop, and the table of segments is where the code looks
        assert (len(sector), sector[510:]) == (512, b"\x55\xaa")
        (table,) = struct.unpack("<H", sector[8:10])
        limit, base = struct.unpack_from("<HI", sector, table - 0x7C00)
        segments = sector[base - 0x7C00 :][: limit + 1]
        assert segments == bytes(8) + bytes.fromhex("ffff0000009acf00")
        (target,) = struct.unpack("<H", sector[19:21])
        loop = sector[target - 0x7C00 :]
        assert loop[:5] == b"\xb9" + struct.pack("<I", TURNS)

    @pytest.mark.parametrize(
        ("types", "expected"),
        [(["qemu", "kvm"], ["kvm", "qemu"]), (["qemu"], ["qemu"]), (["kvm", "xen"], ["kvm"])],
    )
    def test_kvm_is_tried_first(self, types: list[str], expected: list[str]) -> None:
        assert advertised({"arch": "x86_64", "types": {"i686": ["xen"], "x86_64": types}}) == expected

    @pytest.mark.parametrize(
        ("facts", "said"),
        [
            (
                {"arch": "x86_64", "types": {"x86_64": ["xen"]}},
                "can neither virtualise nor emulate: expected one",
            ),
            ({"arch": "x86_64", "types": {}}, "can neither virtualise nor emulate"),
            (
                {"arch": "aarch64", "types": {"x86_64": ["qemu"]}},
                "a server of architecture aarch64: expected one of",
            ),
        ],
    )
    def test_a_server_that_runs_no_machines_says_so(self, facts: dict[str, Any], said: str) -> None:
        with pytest.raises(UserError, match=rf"^target\.made\.libvirt: .*{said}"):
            advertised(facts)


class TestRoom:
    sizes = st.builds(
        Machines,
        memory=st.integers(1 << 20, 8 << 30),
        disks=st.lists(st.integers(1 << 20, 64 << 30), max_size=2),
    )

    @given(
        machines=st.lists(sizes, max_size=20), memory=st.integers(0, 64 << 30), disk=st.integers(0, 32 << 30)
    )
    def test_as_many_fit_as_memory_and_disk_allow(
        self, machines: list[Machines], memory: int, disk: int
    ) -> None:
        def fits(number: int) -> dict[str, bool]:
            first = machines[:number]
            return {
                "memory": sum(machine.memory + OVERHEAD for machine in first) <= memory,
                "disk": sum(min(machine.disks[0], WRITTEN) for machine in first if machine.disks) <= disk,
            }

        number, short = fitting(machines, memory, disk, written=True)
        assert all(fits(number).values())
        if number < len(machines):
            assert not fits(number + 1)[short]
        else:
            assert short == ""

    def test_disks_are_sparse_and_unknown_room_is_no_limit(self) -> None:
        machines = [Machines.model_validate({"disks": ["60GiB"]})] * 7
        assert fitting(machines, 64 << 30, 0, written=False) == (7, "")
        assert fitting(machines, 64 << 30, None, written=True) == (7, "")
        assert fitting(machines, 64 << 30, 3 * WRITTEN, written=True) == (3, "disk")


class TestPlan:
    def test_the_authors_machines(self) -> None:
        plan = parse_plan(
            """
name: virtme
target:
  kind: maas
  made: {kind: virtme, power_address: "qemu+ssh://root@10.0.0.5/system"}
  machines: {small: {count: 7, cpu: 2, memory: 4GiB, networks: [eth1, eth2], disks: [10GiB, 60GiB]}}
workload: {kind: spawn, until: probed, concurrency: 7}
stages: [{instances: 7}]
"""
        )
        assert isinstance(plan.target, MaasTarget)
        assert plan.target.made == virtme()
        assert plan.target.machine(6).disks == [10 << 30, 60 << 30]
        assert parse_plan(plan.to_yaml()) == plan

    @pytest.mark.parametrize(
        "address",
        [
            ADDRESS,
            "qemu+tls://h:16514/system?pkipath=/pki",
            "qemu://h/system",
            "qemu:///system",
            "qemu+libssh2://h/system",
        ],
    )
    def test_power_by_ssh_tls_or_here(self, address: str) -> None:
        assert virtme(power_address=address).power_address == address

    @pytest.mark.parametrize(
        "address",
        [
            "qemu+tcp://h/system",
            "qemu+ext://h/system?command=nc",
            "qemu://h/system?no_verify=1",
            "xen://h/",
            "h",
        ],
    )
    def test_an_open_port_is_refused(self, address: str) -> None:
        with pytest.raises(ValueError, match=r"SSH, or TLS that verifies the server|a URI of libvirt"):
            virtme(power_address=address)

    @pytest.mark.parametrize("key", ["KEY", f'command="sh" {KEY}', f"{KEY}\n{KEY}"])
    def test_more_or_less_than_a_key_is_refused(self, key: str) -> None:
        with pytest.raises(ValueError, match="one public key, such as"):
            virtme(authorized_key=key)


class TestRefused:
    async def test_a_plan_for_maas_without_an_address(self) -> None:
        with pytest.raises(UserError, match=r"^target\.made\.power_address: none: expected qemu\+ssh://"):
            await reach(virtme(power_address=""), MaasTarget(kind="maas"))

    async def test_a_libvirt_that_hangs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # given a program that never answers, as libvirt does not
        python = tmp_path / "python3"
        python.write_text('#!/bin/sh\necho "{}"\nexec sleep 1000\n')
        python.chmod(0o755)
        monkeypatch.setattr(link, "ANSWERS_WITHIN", 0.01)
        monkeypatch.setattr(link, "ENDS_WITHIN", 0.01)
        libvirt = Libvirt("qemu:///system", str(python))
        # when it is asked, then one line says so, and the program ends
        with pytest.raises(
            TargetError, match=r"^target\.made\.libvirt: qemu:///system: no answer within 0\.01 s: exp"
        ):
            await libvirt.reach()
        await libvirt.close()

    @pytest.mark.parametrize("python", [sys.executable, "/no/python3"])
    async def test_a_machine_without_the_binding_of_libvirt(self, python: str) -> None:
        # given a Python that has no python3-libvirt, as that of the suite has none
        libvirt = Libvirt("qemu:///system", python)
        # when it is asked, then one line says which package is missing
        with pytest.raises(UserError) as refused:
            await libvirt.reach()
        await libvirt.close()
        assert str(refused.value) == (
            "target.made.kind: virtme: expected the distribution's package python3-libvirt, "
            f"which {python} does not find"
        )

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            (
                {"power_address": "qemu+tls://h/system"},
                r"^target\.made\.power_address: qemu\+tls://h/system: expected",
            ),
            (
                {"power_address": "qemu+ssh://h/system"},
                r"expected qemu\+ssh://USER@HOST/system with a user of this",
            ),
            ({"power_address": "qemu+ssh://nobody-here@h/system"}, r"with a user of this machine"),
            (
                {"libvirt": "qemu+ssh://h/system"},
                r"with libvirt at qemu\+ssh://h/system: expected none, or the",
            ),
        ],
    )
    def test_a_key_that_cannot_be_lent_here(self, changed: dict[str, str], said: str) -> None:
        with pytest.raises(UserError, match=said):
            check_key(virtme(**{"authorized_key": KEY} | changed))

    def test_a_plan_without_a_key_needs_no_user(self) -> None:
        check_key(virtme(power_address="qemu+tls://h/system"))


def test_the_program_is_for_the_distributions_python() -> None:
    """It is started as a file, so it imports nothing of the suite, nor a library."""
    program = Path(sys.modules[Libvirt.__module__].__file__ or "").with_name("program.py")
    imported = {
        line.split()[1].partition(".")[0]
        for line in program.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported - {"__future__"} <= sys.stdlib_module_names
