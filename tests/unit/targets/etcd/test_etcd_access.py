"""Where an etcd is: which logins are sent to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.targets.etcd.access import access
from tippingpoint.targets.etcd.plan import EtcdTarget


def target(directory: Path, *endpoints: str) -> EtcdTarget:
    path = directory / "etcd.yaml"
    path.write_text("{username: ann, password: hush}")
    path.chmod(0o600)
    return EtcdTarget(endpoints=list(endpoints), credentials=path)


@pytest.mark.parametrize("endpoint", ["http://10.0.0.1:2379", "http://etcd.example"])
def test_a_password_is_not_sent_without_tls(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(
        UserError, match=r"target\.endpoints: http://.*: expected an https URL, as there is a login"
    ):
        access(target(tmp_path, "https://10.0.0.2:2379", endpoint))


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:2379", "http://[::1]:2379", "https://10.0.0.1:2379"])
def test_over_tls_and_on_this_machine_it_is(tmp_path: Path, endpoint: str) -> None:
    assert access(target(tmp_path, endpoint)).credentials is not None
    assert access(EtcdTarget(endpoints=["http://10.0.0.1:2379"])).credentials is None


@pytest.mark.parametrize(
    ("written", "endpoints"),
    [
        ("[http://[::1]:2379]", ["http://[::1]:2379"]),
        ("http://[::1]:2379", ["http://[::1]:2379"]),
        ("[http://[::1]:2379, 'http://b:2379']", ["http://[::1]:2379", "http://b:2379"]),
        ("['http://[::1]:2379']", ["http://[::1]:2379"]),
        ("http://a:2379,http://b:2379", ["http://a:2379", "http://b:2379"]),
        ("[http://a:2379,http://b:2379]", ["http://a:2379", "http://b:2379"]),
        ("http://[fe80::1%eth0]:2379, http://b:2379,", ["http://[fe80::1%eth0]:2379", "http://b:2379"]),
    ],
)
def test_endpoints_are_taken_as_people_and_etcdctl_write_them(written: str, endpoints: list[str]) -> None:
    for field in ("endpoints", "pprof"):
        plan = parse_plan("{name: p, stages: [{leases: 1}]}", [f"target.{field}={written}"])
        assert isinstance(plan.target, EtcdTarget)
        assert getattr(plan.target, field) == endpoints


@pytest.mark.parametrize("written", ["[]", "''", ",", "[http://[::1]:2379", "a:2379", "{a: b}", "7"])
def test_what_is_no_list_of_endpoints_is_refused_in_one_line(written: str) -> None:
    with pytest.raises(UserError, match=r"^target\.endpoints"):
        parse_plan("{name: p, stages: [{leases: 1}]}", [f"target.endpoints={written}"])
