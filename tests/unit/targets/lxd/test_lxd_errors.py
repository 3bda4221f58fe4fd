"""What LXD's errors mean. The texts are those that LXD 5.0.2 gave, but where it says otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.lxd.errors import LxdError, LxdExists, LxdGone, lxd_error
from tippingpoint.workloads.spawn.target import TROUBLES, Exists, Gone, Trouble

NEVER_SEEN: list[tuple[str, int, Trouble]] = [
    # LXD keeps these from its clients, mostly: it tries again (lxd/db/query/retry.go).
    ("Failed creating instance record: database is locked", 500, "locked"),
    ('Failed to fetch from "instances" table: checkpoint in progress', 500, "locked"),
    ("cannot start a transaction within a transaction", 500, "locked"),
    ("driver: bad connection", 500, "locked"),
    ("not leader", 500, "quorum"),
    ("mkdir /var/lib/lxd/storage-pools/default/containers/x: no space left on device", 500, "full"),
    ("LXD is shutting down", 503, "unreachable"),
    ("LXD daemon setup in progress", 503, "unreachable"),
    ("Storage pool is unavailable on this server", 503, "unreachable"),
    ("Token has expired", 403, "trust"),
    ('User does not have permission for project "p"', 403, "trust"),
    ('Reached maximum aggregate value "1GiB" for "limits.memory" in project "p"', 500, "quota"),
]
SEEN: list[tuple[str, int, Trouble]] = [
    ("Failed to begin transaction: context deadline exceeded", 500, "quorum"),
    (
        "Failed to begin transaction: failed to create dqlite connection: no available dqlite leader server found",
        503,
        "quorum",
    ),
    (
        'failed to add "Starting instance" Operation 0a8a49cc to database: Failed to begin transaction: '
        "context deadline exceeded",
        500,
        "quorum",
    ),
    ("context deadline exceeded", 500, "timeout"),
    ("Missing event connection with target cluster member", 500, "unreachable"),
    (
        'Post "https://192.0.2.2:8443/1.0/instances?project=default&target=m2": Unable to connect to: '
        "192.0.2.2:8443 ([dial tcp 192.0.2.2:8443: i/o timeout])",
        500,
        "unreachable",
    ),
    ('Get "https://192.0.2.2:8443/1.0/operations/cd4a7c1e/wait": EOF', 500, "unreachable"),
    ('Failed creating instance record: Instance is busy running a "create" operation', 400, "busy"),
    (
        "Failed to create instance delete operation: A matching non-reusable operation has now succeeded",
        400,
        "busy",
    ),
    ("Failed creating instance from image: Unable to unpack image, run out of disk space", 400, "full"),
    ('Reached maximum number of instances in project "p"', 500, "quota"),
    ("Image alias not found", 404, "image"),
    ("Image not found", 404, "image"),
    ("Image not provided for instance creation", 400, "image"),
    ("not authorized", 403, "trust"),
    ("No matching certificate add operation found", 403, "trust"),
    ('Invalid project configuration key "limits.nonsense"', 400, "setting"),
    ("Failed creating instance record: Unknown configuration key: limits.memry", 400, "setting"),
    ("Failed creating instance record: Invalid value: abc", 400, "setting"),
    (
        "Failed creating instance record: Failed initialising instance: Failed loading storage pool: "
        "Storage pool not found",
        400,
        "setting",
    ),
    (
        "Failed creating instance record: Failed initialising instance: Invalid devices: Device validation failed for "
        '"eth0": Failed loading device "eth0": Failed to load network "zip" for project "default": Network not found',
        400,
        "setting",
    ),
    ("The instance is already running", 400, "other"),
    ("Instance is running", 400, "other"),
    ("Only empty projects can be removed", 500, "other"),
    ("Project not found", 404, "other"),
    ("not found", 404, "other"),
]


@pytest.mark.parametrize(("message", "code", "kind"), SEEN + NEVER_SEEN)
def test_a_text_of_lxd_is_classified(message: str, code: int, kind: Trouble) -> None:
    error = lxd_error(message, code)
    assert (error.kind, error.code, str(error)) == (kind, code, message)
    assert not isinstance(error, Gone | Exists)


@pytest.mark.parametrize("kind", TROUBLES)
def test_every_kind_of_trouble_has_a_text_of_lxd(kind: Trouble) -> None:
    assert kind in {known for _, _, known in SEEN + NEVER_SEEN}


@pytest.mark.parametrize("message", ["Instance not found", "Failed to load instance: Instance not found"])
def test_an_instance_that_is_not_there_is_gone(message: str) -> None:
    error = lxd_error(message, 404)
    assert isinstance(error, LxdGone)
    assert isinstance(error, Gone)
    assert error.code == 404


@pytest.mark.parametrize(
    "message",
    [
        'Failed creating instance record: Add instance info to the database: This "instances" entry already exists',
        'Failed creating project "p": Failed adding database record: This "projects" entry already exists',
        "Image with same fingerprint already exists",
        "UNIQUE constraint failed: instances.project_id, instances.name",
    ],
)
def test_what_is_there_already_exists(message: str) -> None:
    error = lxd_error(message, 400)
    assert isinstance(error, LxdExists)
    assert isinstance(error, Exists)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(403, "trust"), (502, "unreachable"), (503, "unreachable"), (504, "timeout"), (500, "other")],
)
def test_where_no_text_tells_the_code_does(code: int, kind: Trouble) -> None:
    assert lxd_error("something", code).kind == kind


@given(st.text(), st.integers(0, 999))
def test_whatever_lxd_says_is_one_line_of_one_kind(message: str, code: int) -> None:
    error = lxd_error(message, code)
    assert isinstance(error, OperationFailed)
    assert isinstance(error, LxdError)
    assert len(str(error).splitlines()) <= 1
    assert len(str(error)) <= 400
    assert error.kind in TROUBLES


def test_incus_refuses_a_restricted_certificate_as_lxd_does() -> None:
    """As Incus 6.0.4 answers where such a certificate lists storage pools."""
    problem = lxd_error("Certificate is restricted", 500)

    assert (problem.kind, problem.code) == ("trust", 403)
