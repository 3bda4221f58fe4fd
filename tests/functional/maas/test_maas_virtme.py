"""virtme on the lab's real libvirt: machines are made, registered, commissioned, deployed and removed, and nothing else
is."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from base64 import b64encode
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from lab.maas.simulator import MaasLab
from tests.functional.program import WITHIN_S, no_traceback, only_run, run, start, until
from tests.functional.spawn_runs import crash, directory_of, going, merged_plan, named, one_line, wait_for
from tests.functional.virsh import virsh
from tippingpoint.errors import TargetError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.targets.maas.names import machine_name, mark_of
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.pools import make_pool
from tippingpoint.targets.maas.virtme.definitions import (
    IMAGES,
    pool_path,
    pool_xml,
    probe_xml,
    uuid_of,
    volume_xml,
)
from tippingpoint.targets.maas.virtme.link import Libvirt
from tippingpoint.targets.maas.virtme.machines import VirtmeMachines
from tippingpoint.targets.maas.virtme.probe import boot_sector
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item

FEW: dict[str, Any] = {
    "name": "virtme",
    "target": {
        "kind": "maas",
        "machines": {
            "small": {"count": 2, "cpu": 1, "memory": "96MiB", "networks": ["maas"], "disks": ["10GiB"]}
        },
    },
    "workload": {
        "kind": "spawn",
        "until": "created",
        "concurrency": 7,
        "observe_every": "1s",
        "poll_every": "500ms",
        "timeout": f"{WITHIN_S:g}s",
    },
    "stages": [{"instances": 2, "hold": "1s"}],
}
TWO_SIZES = {
    "small": {"count": 1, "cpu": 1, "memory": "96MiB", "networks": ["maas"], "disks": ["10GiB", "60GiB"]},
    "large": {"count": 1, "cpu": 2, "memory": "128MiB", "networks": ["maas", "maas"], "disks": ["20GiB"]},
}
LONG_S = 3 * WITHIN_S
"""Each emulated machine takes ten seconds of CPU time to boot twice."""
_LONG_HOLD = "20m"
"""What the test ends."""
RUN, PREFIX = "the-run", "tp0123abcd"
MARK, FIRST = mark_of(RUN), Item(0, 0)


def plan_of(directory: Path, **changes: Any) -> Path:
    return merged_plan(directory, FEW, changes)


def settings(lab: MaasLab, *more: str) -> list[str]:
    return [part for setting in (*lab.settings(), *more) for part in ("--set", setting)]


def everything(lab: MaasLab) -> tuple[Any, ...]:
    """What libvirt and the region have."""
    return *(set(virsh(lab, kind, "--all", "--name").split()) for kind in ("list", "pool-list")), lab.counts()


def directories(lab: MaasLab) -> set[str]:
    """What is in the directory of libvirt's images."""
    assert lab.libvirt is not None
    return {path.name for path in (lab.libvirt.directory / "lib" / "images").glob("*")}


def on_host(lab: MaasLab, *command: str) -> None:
    """Run a command where libvirtd is."""
    assert lab.libvirt is not None
    inside = ["nsenter", f"--target={lab.libvirt.daemon.host}", "--mount", "--pid"]
    subprocess.run([*inside, *command], check=True)


@contextlib.asynccontextmanager
async def making(lab: MaasLab, **target: Any) -> AsyncGenerator[VirtmeMachines]:
    """Makes machines as a worker does, once the run has its pools; all of it is removed after the test."""
    assert lab.libvirt is not None
    made = Virtme(kind="virtme", libvirt=lab.libvirt.uri, power_address=lab.libvirt.power_address)
    section = MaasTarget.model_validate(
        {"kind": "maas", "credentials": lab.credentials, "made": made, "machines": FEW["target"]["machines"]}
        | target
    )
    known = access(section)
    client = MaasClient(known)
    workspace = MaasWorkspace(run=RUN, prefix=PREFIX, target=section, domain=lab.libvirt.domain_type)
    machines = VirtmeMachines(made, workspace, client, known.power)
    try:
        await machines.open()
        await make_pool(client, PREFIX, RUN, 0)
        await ask(lab, "make_pool", name=PREFIX, uuid=uuid_of(MARK, PREFIX), xml=pool_xml(PREFIX, MARK))
        yield machines
    finally:
        for kind in ("machines", "resourcepools"):
            for each in await client.get(f"{kind}/"):
                if each.get("description") == MARK:
                    one = (
                        f"machines/{each['system_id']}/"
                        if kind == "machines"
                        else f"resourcepool/{each['id']}/"
                    )
                    await client.send("DELETE", one)
        await machines.clear()
        await machines.close()
        await client.close()


async def ask(lab: MaasLab, do: str, **arguments: Any) -> Any:
    """What the program of the distribution's Python answers."""
    assert lab.libvirt is not None
    libvirt = Libvirt(lab.libvirt.uri)
    try:
        return await libvirt.ask(do, **arguments)
    finally:
        await libvirt.close()


class TestRuns:
    def test_machines_of_two_sizes_are_made_deployed_and_removed(
        self, libvirt: MaasLab, tmp_path: Path
    ) -> None:
        """Then each step is in the report, with how they are virtualised. (The author's seven have two sizes, too.)"""
        before = everything(libvirt), directories(libvirt)
        plan = plan_of(
            tmp_path,
            target={"machines": TWO_SIZES},
            workload={"until": "probed"},
            stages=[{"instances": 2, "hold": "1s"}],
            thresholds=[{"operation": "launch", "error_rate": 0}],
        )
        done = run("run", plan, *settings(libvirt), "--out", tmp_path / "run", within=LONG_S)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (everything(libvirt), directories(libvirt)) == before
        kept = only_run(tmp_path / "run")
        steps = ("enlist", "commission", "deploy", "launch")
        assert {step: kept.stages[-1].attempts(step) for step in steps} == dict.fromkeys(steps, 2)
        (note,) = named(kept.directory, "note")
        assert libvirt.libvirt is not None
        how = "are emulated by QEMU" if libvirt.libvirt.virtualization == "emulation" else "by KVM"
        assert how in note["text"]
        assert how in (kept.directory / "report.html").read_text()

    def test_after_a_crash_clean_stops_and_removes_the_machines(
        self, libvirt: MaasLab, tmp_path: Path
    ) -> None:
        # given a run whose machines boot
        before = everything(libvirt), directories(libvirt)
        plan = plan_of(tmp_path, workload={"until": "started"}, stages=[{"instances": 2, "hold": _LONG_HOLD}])
        with going(start("run", plan, *settings(libvirt), "--out", tmp_path / "run")) as process:
            until(lambda: len(virsh(libvirt, "list", "--name").split()) == 2, "two machines run")
            # when all of it is killed
            crash(process)
        directory = directory_of(tmp_path / "run")
        assert directory is not None
        assert len(virsh(libvirt, "list", "--name").split()) == 2
        # then clean leaves nothing of it
        done = run("clean", directory)
        assert done.returncode == 0, done.stderr
        assert (everything(libvirt), directories(libvirt)) == before

    def test_libvirtd_that_dies_under_running_machines_is_a_counted_result(
        self, libvirt: MaasLab, tmp_path: Path
    ) -> None:
        # given a run with a machine that is deployed
        before = everything(libvirt), directories(libvirt)
        plan = plan_of(
            tmp_path,
            workload={"until": "probed"},
            # (the first is held for long enough that libvirtd is dead before it ends)
            stages=[{"instances": 1, "hold": "30s"}, {"instances": 2, "hold": _LONG_HOLD}],
        )
        out = tmp_path / "run"
        with going(start("run", plan, *settings(libvirt), "--out", out)) as process:
            wait_for(out, process, "stage", within=LONG_S, phase="hold", stage=1)
            (deployed,) = virsh(libvirt, "list", "--name").split()
            # when libvirtd is killed, until another machine could not be made
            libvirt.kill("libvirtd")
            try:
                directory = wait_for(out, process, "error", operation="enlist")
            finally:
                libvirt.start("libvirtd")
            # then the machine has run on, and the other one is made now
            assert virsh(libvirt, "domstate", deployed) == "running"
            until(lambda: len(virsh(libvirt, "list", "--name").split()) == 2, "two machines run")
            assert not named(directory, "lost")
            # and what is there is removed when a user ends the run
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=WITHIN_S)
        assert no_traceback(said)
        (error, *_) = named(directory, "error", operation="enlist")
        assert error["error"].startswith("libvirt: ")
        assert (everything(libvirt), directories(libvirt)) == before

    @pytest.mark.parametrize(
        ("wrong", "exit_code", "said"),
        [
            (
                ["target.machines.small.networks=[maas, eth9]"],
                2,
                "target.machines.small.networks: eth9: expected a network of libvirt's or a bridge of the server",
            ),
            (
                ["target.machines.small.memory=1TiB", "workload.until=started"],
                2,
                "stages.0.instances: 2 more machines: expected at most 0 more, for which the server has enough memory",
            ),
            (
                ["target.made.libvirt=qemu+unix:///system?socket=/no/socket"],
                3,
                "target.made.libvirt: qemu+unix:///system?socket=/no/socket: libvirt: Failed to connect socket",
            ),
            (
                ["target.made.authorized_key=mine"],
                2,
                "target.made.authorized_key: (not shown): expected one public key",
            ),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_line(
        self, libvirt: MaasLab, tmp_path: Path, wrong: list[str], exit_code: int, said: str
    ) -> None:
        before = everything(libvirt), directories(libvirt)
        done = run("run", plan_of(tmp_path), *settings(libvirt, *wrong), "--out", tmp_path / "run")
        assert done.returncode == exit_code
        assert said in one_line(done)
        assert (everything(libvirt), directories(libvirt)) == before


class TestMachines:
    async def test_a_machine_is_made_once_and_removed_once(self, libvirt: MaasLab) -> None:
        async with making(libvirt) as machines:
            # given a machine
            name = machine_name(PREFIX, FIRST)
            await machines.make(FIRST)
            assert virsh(libvirt, "domstate", name) == "shut off"
            assert virsh(libvirt, "vol-list", PREFIX).split() == [
                *(f"{name}-0.qcow2", f"{pool_path(PREFIX)}/{name}-0.qcow2")
            ]
            # when it is made again, as after an answer that was lost
            with pytest.raises(MaasError, match="already in use"):
                await machines.make(FIRST)
            # and removed while it runs, twice
            virsh(libvirt, "start", name)
            await machines.unmake(FIRST)
            await machines.unmake(FIRST)
            # then it is gone with its disk
            assert name not in virsh(libvirt, "list", "--all", "--name").split()
            assert virsh(libvirt, "vol-list", PREFIX) == ""

    async def test_what_is_not_the_runs_stays(self, libvirt: MaasLab, tmp_path: Path) -> None:
        """Given domains, pools and volumes of others, with names or marks like the run's, then they stay."""
        mine = machine_name(PREFIX, FIRST)
        others = {
            f"{PREFIX}": "",
            f"{PREFIX}-000-0001": "somebody's",
            f"{mine}-copy": f"{MARK}1",
            f"x{mine}": MARK,
        }
        for name, mark in others.items():
            xml = tmp_path / "domain.xml"
            xml.write_text(probe_xml(name, mark, "qemu", "/nothing"))
            virsh(libvirt, "define", str(xml))
        pool = f"{PREFIX}-kept"
        virsh(libvirt, "pool-define-as", pool, "dir", "--target", f"{IMAGES}/{pool}")
        virsh(libvirt, "pool-build", pool)
        virsh(libvirt, "pool-start", pool)
        virsh(libvirt, "vol-create-as", pool, f"{mine}-0.qcow2", "1M", "--format", "qcow2")
        before = everything(libvirt)
        async with making(libvirt) as machines:
            await machines.make(FIRST)
            # when a machine has the name of somebody's, then it is not made
            with pytest.raises(
                MaasError, match=r"domain tp0123abcd-000-0001: exists, and is not the run's"
            ) as refused:
                await machines.make(Item(0, 1))
            assert refused.value.kind == "setting"
            assert await machines.clear() == 2
            assert await machines.clear() == 0
        assert everything(libvirt) == before
        assert virsh(libvirt, "vol-list", pool).split()[0] == f"{mine}-0.qcow2"
        for name in others:
            virsh(libvirt, "undefine", name)
        virsh(libvirt, "vol-delete", f"{mine}-0.qcow2", pool)
        for do in ("pool-destroy", "pool-delete", "pool-undefine"):
            virsh(libvirt, do, pool)

    async def test_a_pool_with_somebodys_file_stays_until_it_is_gone(self, libvirt: MaasLab) -> None:
        async with making(libvirt) as machines:
            await machines.make(FIRST)
            virsh(libvirt, "vol-create-as", PREFIX, "theirs.img", "1M")
            with pytest.raises(
                TargetError, match=f"storage pool {PREFIX}: has theirs.img, which is not the run's"
            ):
                await machines.clear()
            assert virsh(libvirt, "vol-list", PREFIX).split()[0] == "theirs.img"
            virsh(libvirt, "vol-delete", "theirs.img", PREFIX)

    async def test_a_pool_of_somebody_else_is_not_taken(self, libvirt: MaasLab) -> None:
        virsh(libvirt, "pool-define-as", PREFIX, "dir", "--target", f"{IMAGES}/theirs")
        try:
            pool = {"name": PREFIX, "uuid": uuid_of(MARK, PREFIX)}
            for do, more in (
                ("make_pool", {"xml": pool_xml(PREFIX, MARK)}),
                ("remove_pool", {"volumes": PREFIX}),
            ):
                with pytest.raises(MaasError, match=f"storage pool {PREFIX}: exists, and is not the run's"):
                    await ask(libvirt, do, **pool, **more)
        finally:
            virsh(libvirt, "pool-undefine", PREFIX)

    async def test_a_disk_that_is_full_is_told_from_other_failures(self, libvirt: MaasLab) -> None:
        async with making(libvirt) as machines:
            # given a pool without space
            on_host(libvirt, "mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", pool_path(PREFIX))
            try:
                # when a machine is made there
                with pytest.raises(MaasError, match=r"No space left on device") as full:
                    await machines.make(FIRST)
            finally:
                on_host(libvirt, "umount", pool_path(PREFIX))
            # then the run knows why, and the machine can be made once there is space
            assert full.value.kind == "full"
            await machines.make(FIRST)

    async def test_networks_are_libvirts_bridges_or_open_vswitchs(
        self, libvirt: MaasLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given a network of libvirt's, and a server whose Open vSwitch has a bridge
        xml = tmp_path / "network.xml"
        xml.write_text("<network><name>inner</name><bridge name='inner0'/></network>")
        virsh(libvirt, "net-define", str(xml))
        vsctl = tmp_path / "ovs-vsctl"
        vsctl.write_text(
            '#!/bin/sh\ncase "$3 $4" in "br-exists br-ovs") ;; *none) exit 2 ;; *) exit 1 ;; esac\n'
        )
        vsctl.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        # when names are looked up, then each is what it is
        try:
            found = await ask(libvirt, "networks", names=["inner", "maas", "br-ovs", "lo", "none"])
        finally:
            virsh(libvirt, "net-undefine", "inner")
        assert found == {"inner": "network", "maas": "bridge", "br-ovs": "openvswitch", "lo": "", "none": ""}

    async def test_a_machine_that_is_only_interpreted_is_no_proof(self, libvirt: MaasLab) -> None:
        """Given a loop that takes longer than a probe's processor time, then it is stopped, and nothing of it is
        left."""
        async with making(libvirt):
            name = f"{PREFIX}-probe"
            tried = await ask(
                libvirt,
                "try_out",
                pool=PREFIX,
                uuid=uuid_of(MARK, PREFIX),
                volume=volume_xml(f"{name}.raw", 1 << 20, "raw"),
                content=b64encode(boot_sector(2**32 - 1)).decode(),
                xml=probe_xml(name, MARK, "qemu", f"{pool_path(PREFIX)}/{name}.raw"),
                within=WITHIN_S,
                cpu=1.0,
            )
            assert tried == {"ended": False, "said": ""}
            assert name not in virsh(libvirt, "list", "--all", "--name").split()
            assert virsh(libvirt, "vol-list", PREFIX) == ""
