"""Cleaning trusts no run's directory further than what its run can have made, whatever its target is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.juju.client import WireClient
from lab.juju.simulator import JujuLab
from tests.unit.play.run_directories import (
    OTHER,
    RUN,
    clean,
    deep,
    expect_one_line,
    folder,
    garbage,
    huge,
    link,
    manifest_of,
    pipe,
    put_run,
    spoilt,
)
from tests.unit.targets.lxd.lxd_stub import LxdStub, lxd_at
from tests.unit.targets.openstack.openstack_cloud import Cloud, cloud_at
from tests.unit.threaded_server import in_thread
from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import FILE as LEDGER
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import FILE as MANIFEST
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix, own_entries
from tippingpoint.targets.etcd.ledger import RUN_LEASE_IDS, EtcdEntry, first_lease_id, key_prefix
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.juju.api.access import from_store
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.model import HollowMachineSpec, ModelAdmin
from tippingpoint.targets.juju.hollow import make_model
from tippingpoint.targets.juju.ledger import JujuEntry, model_name
from tippingpoint.targets.juju.plan import JujuTarget
from tippingpoint.targets.lxd import removal as lxd_removal
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.provision import image_mark
from tippingpoint.targets.openstack import removal as openstack_removal
from tippingpoint.targets.openstack.ledger import OpenstackEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.provision import mark_text
from tippingpoint.util.key_pair import make_pair

NAME, THEIRS = name_prefix(RUN), name_prefix(OTHER)
IMAGE, IMAGE_OF_OTHERS = "a" * 64, "b" * 64


def owned(directory: Path) -> list[Entry]:
    return own_entries(directory, Manifest.load(directory))


# -- what its run cannot have made -------------------------------------------------------------------


def etcd_entry(**change: Any) -> EtcdEntry:
    own = {"prefix": key_prefix(RUN), "first_lease_id": first_lease_id(RUN), "lease_ids": RUN_LEASE_IDS}
    return EtcdEntry(**{**own, **change}, target=EtcdTarget(endpoints=["http://127.0.0.1:1"]))


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": "/"},
        {"prefix": "/tippingpoint/"},
        {"prefix": key_prefix(OTHER)},
        {"first_lease_id": 0},
        {"first_lease_id": first_lease_id(RUN) + 1},
        {"first_lease_id": first_lease_id(OTHER)},
        {"first_lease_id": first_lease_id(OTHER), "lease_ids": 2**31 + 1},
        {"first_lease_id": 2**63, "lease_ids": 2**31},
        {"first_lease_id": -RUN_LEASE_IDS, "lease_ids": 2**31},
        {"lease_ids": RUN_LEASE_IDS + 1},
        {"lease_ids": 0},
    ],
)
def test_an_etcd_entry_that_names_more_than_its_run_made_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"^ledger: .*this run"):
        owned(put_run(tmp_path / "run", etcd_entry(**change)))


def juju_entry(**change: Any) -> JujuEntry:
    own = {"prefix": NAME, "model": model_name(NAME), "made_model": True, "store": None}
    return JujuEntry(**{**own, **change}, target=JujuTarget(kind="juju"))


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": ""},
        {"prefix": "tp"},
        {"prefix": THEIRS},
        {"model": "production"},
        {"model": model_name(THEIRS)},
        {"prefix": THEIRS, "model": "shared", "made_model": False},
        {"prefix": "", "model": "shared", "made_model": False},
    ],
)
def test_a_juju_entry_that_names_more_than_its_run_made_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"what this run made, named {NAME}"):
        owned(put_run(tmp_path / "run", juju_entry(**change)))


def test_a_run_that_made_nothing_on_its_controller_has_nothing_to_clean(tmp_path: Path) -> None:
    """Given a run as one agent, whose agent.conf is gone by now, then cleaning it needs nobody's help."""
    target = JujuTarget(kind="juju", identity="agent", agent=tmp_path / "gone")
    entry = JujuEntry(prefix=NAME, model="", made_model=False, target=target, store=None)
    assert clean(put_run(tmp_path / "run", entry)) == (0, "removed 0\n", "")


def lxd_entry(**change: Any) -> LxdEntry:
    own = {"run": RUN, "prefix": NAME, "image": IMAGE, "store": None, "identity": None}
    return LxdEntry(**{"target": LxdTarget(kind="lxd"), **own, **change})


def openstack_entry(**change: Any) -> OpenstackEntry:
    own = {"run": RUN, "prefix": NAME, "identity": None}
    return OpenstackEntry(**{"target": OpenstackTarget(kind="openstack"), **own, **change})


@pytest.mark.parametrize("make", [lxd_entry, openstack_entry])
@pytest.mark.parametrize(
    "change", [{"prefix": ""}, {"prefix": THEIRS}, {"run": OTHER}, {"run": OTHER, "prefix": THEIRS}]
)
def test_an_entry_of_another_run_is_refused(
    make: Callable[..., Entry], change: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"^ledger: "):
        owned(put_run(tmp_path / "run", make(**change)))


def test_a_run_has_the_things_that_it_went_on_with(tmp_path: Path) -> None:
    """Given a run whose manifest says that it went on with another one, then that one's things are its own, and no
    other's."""
    entry = lxd_entry(run=OTHER, prefix=THEIRS)
    directory = put_run(tmp_path / "run", entry)
    document = manifest_of(RUN, "lxd") | {"things_of": OTHER}
    (directory / MANIFEST).write_text(json.dumps(document))
    assert owned(directory) == [entry]
    for run in (f"{OTHER}.2", OTHER[:-1]):
        with pytest.raises(UserError, match="`tippingpoint clean` of another run removes that run's objects"):
            owned(put_run(tmp_path / "part", entry, run=run))


@pytest.mark.parametrize("image", ["../projects/default", "a" * 63, "x?project=other", "A" * 64])
def test_an_image_is_known_by_its_fingerprint(image: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fingerprint"):
        owned(put_run(tmp_path / "run", lxd_entry(image=image)))


@pytest.mark.parametrize("run", ["", ".", "..", "../x", "a/b", "a\n", "-x", "x" * 201, "a b"])
def test_a_run_s_id_is_one_part_of_a_path(run: str, tmp_path: Path) -> None:
    directory = put_run(tmp_path / "run", etcd_entry())
    (directory / MANIFEST).write_text(json.dumps(manifest_of(RUN, "etcd") | {"id": run}))
    code, out, err = clean(directory)
    expect_one_line(code, out, err)
    assert (code, "id" in err) == (2, True)


def test_a_ledger_of_another_target_is_refused(tmp_path: Path) -> None:
    directory = put_run(tmp_path / "run", juju_entry(), kind="etcd")
    assert clean(directory) == (
        2,
        "",
        "tippingpoint: ledger: target juju: expected etcd, as in the run's manifest\n",
    )


@pytest.mark.parametrize("name", [LEDGER, MANIFEST])
@pytest.mark.parametrize("damage", [link, folder, pipe, huge, garbage, deep])
def test_what_is_no_file_of_a_run_is_refused_in_one_line(
    name: str, damage: Callable[[Path, str], None], tmp_path: Path
) -> None:
    directory = put_run(tmp_path / "run", etcd_entry())
    path = directory / name
    text = path.read_text()
    path.unlink()
    damage(path, text)
    code, out, err = clean(directory)
    expect_one_line(code, out, err)
    assert (code, name in err) == (2, True)


# -- files that it names -----------------------------------------------------------------------------


def precious(directory: Path) -> dict[str, bytes]:
    """Files of the user's, as an lxc client has them, and a password."""
    directory.mkdir(exist_ok=True)
    certificate, key = make_pair("root@here")
    for name, content in {"client.crt": certificate, "client.key": key, "openstack-user": b"hush"}.items():
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o600)
    return files(directory)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("way", ["named", "named well", "link", "links inside"])
def test_a_key_pair_that_is_not_the_run_s_is_not_touched(way: str, tmp_path: Path) -> None:
    """Given a ledger whose key pair is the user's own, by its path, by a path that looks like a run's, or by links,
    then it is there afterwards, and trusted."""
    theirs = tmp_path / ("trust" if way == "named well" else "theirs")
    kept = precious(theirs)
    identity = theirs if way.startswith("named") else tmp_path / "run" / "trust"
    directory = put_run(
        tmp_path / "run", lxd_entry(target=LxdTarget(kind="lxd", token=tmp_path), identity=identity)
    )
    if way == "link":
        identity.symlink_to(theirs)
    elif way == "links inside":
        identity.mkdir()
        for name in kept:
            (identity / name).symlink_to(theirs / name)
        (identity / "addresses").write_text("https://127.0.0.1:1\n")
        (identity / "server.crt").write_bytes(make_pair("server")[0])
    code, out, err = clean(directory)
    assert files(theirs) == kept
    if way == "named well":  # it is looked for where a run has it, and is not there
        assert (code, out) == (0, "removed 0\n")
    else:
        expect_one_line(code, out, err)
        assert code == 2


def test_a_directory_that_was_moved_has_its_key_pair_with_it(tmp_path: Path) -> None:
    """Given a run whose token was never redeemed, in a directory that was moved, then its key pair goes, and what
    somebody put beside it stays."""
    directory = put_run(tmp_path / "run", lxd_entry(target=LxdTarget(kind="lxd", token=tmp_path)))
    moved = put_run(
        tmp_path / "moved",
        lxd_entry(target=LxdTarget(kind="lxd", token=tmp_path), identity=directory / "trust"),
    )
    (moved / "trust").mkdir()
    for name in ("client.crt", "client.key", "mine"):
        (moved / "trust" / name).write_text("x")
    assert clean(moved) == (0, "removed 0\n", "")
    assert [*files(moved / "trust")] == ["mine"]


def test_a_password_elsewhere_is_not_removed(tmp_path: Path) -> None:
    kept = precious(tmp_path / "theirs")
    for identity in (tmp_path / "theirs" / "openstack-user", tmp_path / "theirs" / "client.key"):
        entry = openstack_entry(run=OTHER, prefix=THEIRS, identity=identity)
        directory = put_run(tmp_path / "run", entry)
        (directory / MANIFEST).write_text(json.dumps(manifest_of(RUN, "openstack") | {"things_of": OTHER}))
        code, out, err = clean(directory)
        expect_one_line(code, out, err)
        assert (code, files(tmp_path / "theirs")) == (2, kept)


# -- whatever is made of it ----------------------------------------------------------------------------


def fuzz(
    directory: Path,
    own: Entry,
    others: Entry,
    reset: Callable[[], None],
    check: Callable[[], None],
    examples: int,
) -> None:
    """Clean what was made of a run's directory, again and again; `check` looks after each at what is there."""
    documents = [json.loads(entry.model_dump_json()) for entry in (own, others)]
    elsewhere = directory.with_name("elsewhere")
    kept = precious(elsewhere)
    paths = [str(elsewhere), str(elsewhere / "openstack-user"), str(directory / "trust")]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def never(data: st.DataObject) -> None:
        reset()
        put_run(directory, documents[0])
        data.draw(spoilt(*documents, *paths))(directory)
        expect_one_line(*clean(directory))
        check()
        assert files(elsewhere) == kept

    never()


def put_in_cloud(cloud: Cloud, run: str, group: int) -> None:
    """What a run with projects has in an OpenStack."""
    prefix, described = name_prefix(run), {"description": mark_text(run)}
    project = cloud.put("projects", f"{prefix}-{group:03d}", **described)
    network = cloud.put("networks", f"{prefix}-{group:03d}", **described, project_id=project)
    cloud.put("ports", "", device_id="dhcp", device_owner="network:dhcp", network_id=network)
    cloud.put("routers", f"{prefix}-{group:03d}", **described, project_id=project)
    cloud.put(
        "servers",
        f"{prefix}-{group:03d}-0000",
        status="ACTIVE",
        metadata={"tippingpoint": run},
        tenant_id=project,
    )
    cloud.put("users", prefix, **described)
    cloud.put("flavors", prefix)
    cloud.put("images", prefix, tippingpoint=run)


def in_cloud(cloud: Cloud) -> set[str]:
    return {identity for things in cloud.things.values() for identity in things}


def test_nothing_of_others_goes_from_an_openstack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openstack_removal, "_PAUSE", 0.01)
    monkeypatch.chdir(tmp_path)
    image = tmp_path / "image.raw"
    wanted = {"tenants": True, "network": "made", "flavor": "made", "image": str(image)}
    with in_thread(cloud_at(tmp_path, **wanted)) as (cloud, entry):
        put_in_cloud(cloud, OTHER, 0)
        cloud.put("servers", f"{NAME}-000-0009", status="ACTIVE", metadata={})
        cloud.put("networks", f"{NAME}-001", description="mine")
        cloud.put("flavors", "small")
        others = in_cloud(cloud)
        mine = {"target": entry.target, "identity": tmp_path / "run" / "openstack-user"}

        def reset() -> None:
            for identity in in_cloud(cloud) - others:
                for things in cloud.things.values():
                    things.pop(identity, None)
            put_in_cloud(cloud, RUN, 0)

        def check() -> None:
            assert in_cloud(cloud) >= others

        own, theirs = openstack_entry(**mine), openstack_entry(**mine, run=OTHER, prefix=THEIRS)
        reset()
        assert clean(put_run(tmp_path / "run", own))[:2] == (0, "removed 8\n")
        assert in_cloud(cloud) == others
        fuzz(tmp_path / "run", own, theirs, reset, check, 100)


def put_in_lxd(lxd: LxdStub, run: str, image: str) -> None:
    mark = {"user.tippingpoint": run}
    lxd.projects[f"{name_prefix(run)}-000"] = mark
    for number in range(2):
        lxd.instances[f"{name_prefix(run)}-000", f"{name_prefix(run)}-000-{number:04d}"] = mark
    lxd.images[image] = image_mark(run)


def test_nothing_of_others_goes_from_an_lxd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lxd_removal, "_PAUSE", 0.01)
    monkeypatch.setattr(lxd_removal, "STUCK_AFTER", 2.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LXD_CONF", str(tmp_path / "none"))
    monkeypatch.setenv("LXD_DIR", str(tmp_path / "none"))
    with in_thread(lxd_at(tmp_path / "lxd.sock")) as lxd:
        lxd.projects["default"] = {}
        lxd.projects[f"{NAME}-001"] = {}  # no mark of ours
        lxd.instances["default", f"{NAME}-000-0000"] = {}
        lxd.instances["default", "web"] = {"user.tippingpoint": OTHER}
        lxd.images["c" * 64] = ""
        put_in_lxd(lxd, OTHER, IMAGE_OF_OTHERS)
        others = lxd.everything()

        def check() -> None:
            assert lxd.everything() >= others

        target = LxdTarget(kind="lxd", socket=tmp_path / "lxd.sock")
        own = lxd_entry(target=target)
        theirs = lxd_entry(target=target, run=OTHER, prefix=THEIRS, image=IMAGE_OF_OTHERS)
        put_in_lxd(lxd, RUN, IMAGE)
        assert clean(put_run(tmp_path / "run", own)) == (0, "removed 4\n", "")
        assert lxd.everything() == others
        fuzz(tmp_path / "run", own, theirs, lambda: put_in_lxd(lxd, RUN, IMAGE), check, 150)


def on_controller(lab: JujuLab) -> dict[str, tuple[list[str], list[str]]]:
    """By model the applications and the machines of a controller."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    with WireClient(lab.addresses[0], lab.ca) as controller:
        controller.login(f"user-{lab.user}", lab.password)
        listed = controller.call("ModelManager", 10, "ListModels", {"tag": f"user-{lab.user}"})
    for entry in listed["response"]["user-models"]:
        with WireClient(lab.addresses[0], lab.ca, entry["model"]["uuid"]) as model:
            model.login(f"user-{lab.user}", lab.password)
            status = model.call("Client", 8, "FullStatus", {"patterns": []})["response"]
        machines = sorted(machine["instance-id"] for machine in status["machines"].values())
        found[entry["model"]["name"]] = (sorted(status["applications"]), machines)
    return found


def put_on_controller(lab: JujuLab, name: str, prefix: str) -> None:
    """A model with a machine and an application whose names begin so."""

    async def put() -> None:
        access = from_store(lab.controller, lab.data)
        client = ApiClient(access.addresses, access.ca)
        try:
            admin = await ModelAdmin.open(client, access, await make_model(access, name))
            (machine,) = await admin.add_machines([HollowMachineSpec(f"manual:{prefix}-0-0", "192.0.2.9")])
            await admin.deploy([f"{prefix}-l0"], 1, machine)
        finally:
            await client.close()

    asyncio.run(put())


def test_nothing_of_others_goes_from_a_juju_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with JujuLab() as lab:
        monkeypatch.setenv("JUJU_DATA", str(lab.data))
        put_on_controller(lab, model_name(THEIRS), THEIRS)
        put_on_controller(lab, "production", "postgresql")
        others = on_controller(lab)
        target = JujuTarget(kind="juju", controller=lab.controller)
        own = juju_entry().model_copy(update={"target": target, "store": lab.data})
        theirs = own.model_copy(update={"prefix": THEIRS, "model": model_name(THEIRS)})
        put_on_controller(lab, model_name(NAME), NAME)
        assert clean(put_run(tmp_path / "run", own)) == (0, "removed 4\n", "")
        assert on_controller(lab) == others

        def check() -> None:
            assert on_controller(lab) == others

        fuzz(tmp_path / "run", own, theirs, lambda: None, check, 60)
