"""The ledger: what a run may have made is known after any end, from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import FILE, Entry, entries, remember
from tippingpoint.targets.etcd.ledger import EtcdEntry
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.juju.ledger import JujuEntry
from tippingpoint.targets.juju.plan import JujuTarget


def entry(prefix: str = "/tippingpoint/r/", **target: Path) -> EtcdEntry:
    return EtcdEntry(
        prefix=prefix, first_lease_id=1 << 40, lease_ids=2, target=EtcdTarget.model_validate(target)
    )


def juju_entry(store: Path | None = None, **target: object) -> JujuEntry:
    return JujuEntry(
        prefix="tp1a2b3c4d",
        model="tippingpoint-tp1a2b3c4d",
        made_model=True,
        target=JujuTarget.model_validate({"kind": "juju", **target}),
        store=store,
    )


def test_entries_are_read_back_in_order(tmp_path: Path) -> None:
    assert entries(tmp_path) == []
    remember(tmp_path, entry("/a/"))
    remember(tmp_path, entry("/b/"))
    assert entries(tmp_path) == [entry("/a/"), entry("/b/")]


def test_files_of_a_target_are_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a target that names its files relative to where the run is started
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    names = {name: Path(f"tls/{name}.pem") for name in ("ca", "cert", "key", "credentials")}
    remember(tmp_path, entry(**names))
    # when its ledger is read elsewhere
    monkeypatch.chdir(tmp_path)
    (read,) = entries(tmp_path)
    # then they are where they were
    found = (read.target.ca, read.target.cert, read.target.key, read.target.credentials)
    assert found == tuple(here / path for path in names.values())


def test_a_juju_controller_is_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a juju client's store, and a credentials file, named relative to where the run is started
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    remember(tmp_path, juju_entry(store=Path("store"), controller="prod"))
    remember(tmp_path, juju_entry(credentials="secret.yaml"))
    # when the ledger is read elsewhere
    monkeypatch.chdir(tmp_path)
    by_name, by_file = entries(tmp_path)
    # then they are where they were
    assert isinstance(by_name, JujuEntry)
    assert isinstance(by_file, JujuEntry)
    assert (by_name.store, by_name.target.controller) == (here / "store", "prod")
    assert (by_file.store, by_file.target.credentials) == (None, here / "secret.yaml")
    assert (by_file.prefix, by_file.model, by_file.made_model) == (
        "tp1a2b3c4d",
        "tippingpoint-tp1a2b3c4d",
        True,
    )


def test_entries_of_different_targets_are_told_apart(tmp_path: Path) -> None:
    made: list[Entry] = [entry("/a/"), juju_entry(), entry("/b/"), juju_entry(model="m")]
    for one in made:
        remember(tmp_path, one)
    assert entries(tmp_path) == made


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_a_half_written_last_line_is_harmless(tmp_path: Path, whole: int) -> None:
    # given a ledger after a crash in the middle of a write
    for number in range(whole + 1):
        remember(tmp_path, entry(f"/{number}/"))
    path = tmp_path / FILE
    written = path.read_bytes()
    for cut in (10, 40, len(entry("/0/").model_dump_json())):
        path.write_bytes(written[:-cut])
        # then what was written whole is known
        assert entries(tmp_path) == [entry(f"/{number}/") for number in range(whole)]


def test_a_last_line_without_its_end_counts_when_it_is_whole(tmp_path: Path) -> None:
    remember(tmp_path, entry())
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert entries(tmp_path) == [entry()]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"7",
        b'{"prefix": "/a/"}',
        b'{"kind": "lxd"}',
        b'{"kind": "juju", "prefix": "tp1"}',
        b'{"kind": []}',
    ],
)
def test_a_damaged_earlier_line_is_refused_in_one_line(tmp_path: Path, damage: bytes) -> None:
    for prefix in ("/a/", "/b/"):
        remember(tmp_path, entry(prefix))
    path = tmp_path / FILE
    path.write_bytes(damage + b"\n" + path.read_bytes())
    with pytest.raises(UserError, match=rf"^ledger: .*{FILE}:1: expected a ledger entry") as refused:
        entries(tmp_path)
    assert "\n" not in str(refused.value)
