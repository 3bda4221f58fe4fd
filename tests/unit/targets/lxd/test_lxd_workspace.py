"""What a run's things in an LXD are called, and what of a plan is settled before anything is made."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.targets.lxd.image import fingerprint
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.provision import (
    group_of,
    instance_name,
    new_entry,
    number_of,
    parts_of,
    project_name,
)
from tippingpoint.targets.registry import target_of

PREFIX = "tp12345678"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A socket that the environment names as the local server's, and a client without any remote."""
    path = tmp_path / "lxd" / "unix.socket"
    path.parent.mkdir()
    monkeypatch.delenv("LXD_SOCKET", raising=False)
    monkeypatch.setenv("LXD_DIR", str(path.parent))
    monkeypatch.setenv("LXD_CONF", str(tmp_path / "none"))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        yield path


def entry_of(directory: Path, **fields: object) -> LxdEntry:
    target = LxdTarget.model_validate({"kind": "lxd", "image": "jammy", **fields})
    return new_entry(target, "run-1", PREFIX, directory)


@pytest.mark.parametrize(("group", "number"), [(0, 0), (7, 12), (999, 9999), (1000, 10000)])
def test_names_say_which_group_and_number_they_are_of(group: int, number: int) -> None:
    name = instance_name(PREFIX, group, number)
    assert name.startswith(project_name(PREFIX, group) + "-")
    assert number_of(PREFIX, group, name) == number
    assert group_of(PREFIX, project_name(PREFIX, group)) == group


def test_the_first_names() -> None:
    assert (project_name(PREFIX, 0), instance_name(PREFIX, 0, 1)) == ("tp12345678-000", "tp12345678-000-0001")


@given(st.text("tp0123456789abcdef-", min_size=1, max_size=12), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_name_says_what_it_was_made_of(prefix: str, group: int, number: int) -> None:
    assert parts_of(instance_name(prefix, group, number)) == (prefix, group, number)


@given(st.text("tp-0123456789\u0661", max_size=20))
def test_a_name_of_ours_is_the_one_its_parts_make(name: str) -> None:
    parts = parts_of(name)
    assert parts is None or instance_name(*parts) == name


@pytest.mark.parametrize(
    "name",
    [
        "web",
        "tp12345678-000",
        "tp12345678-001-0001",
        "tp99999999-000-0001",
        "tp12345678-000-1",
        "tp12345678-000-00001",
        "tp12345678-000-0001x",
        "tp12345678-000-",
        "tp12345678-000-000١",
    ],
)
def test_a_name_that_is_none_of_the_groups_is_none_of_ours(name: str) -> None:
    assert number_of(PREFIX, 0, name) is None


@pytest.mark.parametrize(
    "name", ["default", "tp12345678", "tp12345678-1", "tp12345678-0001", "tp99999999-000"]
)
def test_a_project_of_another_name_is_none_of_ours(name: str) -> None:
    assert group_of(PREFIX, name) is None


def test_the_local_server_is_remembered_by_its_socket(server: Path, tmp_path: Path) -> None:
    entry = entry_of(tmp_path)
    assert (entry.target.socket, entry.target.remote, entry.store) == (server, None, None)


def test_an_image_on_the_server_is_not_imported(server: Path, tmp_path: Path) -> None:
    assert entry_of(tmp_path).image == ""


def test_a_file_is_imported_and_remembered_by_its_absolute_path(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("image.tar.gz").write_bytes(b"an image")
    entry = entry_of(tmp_path, image="image.tar.gz")
    assert entry.image == fingerprint(b"an image")
    assert entry.target.image == str(tmp_path / "image.tar.gz")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    with pytest.raises(UserError, match=r"^target\.token: .*mode 0600"):
        entry_of(tmp_path, token=token)


def test_a_token_that_is_none_is_refused_without_being_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("secret")
    with pytest.raises(UserError, match=r"^target\.token: ") as refused:
        entry_of(tmp_path, token=token)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "trust").exists()


def test_a_stage_may_have_as_many_groups_as_projects_are_named(server: Path, tmp_path: Path) -> None:
    text = """
name: fill
target: {kind: lxd, image: jammy, projects: [a, b]}
workload: {kind: spawn, concurrency: 4}
stages: [{groups: 2, instances: 5}, {groups: GROUPS, instances: 5}]
"""
    entry = target_of("lxd").new_entry(parse_plan(text.replace("GROUPS", "1")), "run-1", tmp_path)
    assert isinstance(entry, LxdEntry)
    assert entry.target.projects == ["a", "b"]
    expected = r"^stages\.1\.groups: 3: expected at most 2, as target\.projects has that many \(a, b\)$"
    with pytest.raises(UserError, match=expected):
        parse_plan(text.replace("GROUPS", "3"))
