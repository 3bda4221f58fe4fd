"""Whatever others write into relations, secrets and configuration: one line at most, and no secret anywhere."""

from __future__ import annotations

import json
import string
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops import testing

from tests.charms.related import (
    CLIENT,
    KINDS,
    META,
    PASSWORD,
    SERVER,
    after,
    as_the_engine_reads,
    context,
    everything_sent,
    state,
)
from tests.charms.test_relations_targets import KEYSTONE

KEYS = {
    "controller": ["controller-url", "identity-provider-url", "is-juju"],
    "controller-http": ["hostname", "private-address", "port"],
    "lxd": ["version", "certificate", "certificate_fingerprint", "addresses"],
    "identity-credentials": [
        "credentials_host",
        "credentials_port",
        "credentials_protocol",
        "credentials_username",
        "credentials_password",
        "credentials_project",
        "credentials_project_id",
        "credentials_user_domain_id",
        "credentials_project_domain_name",
        "ca_cert",
        "api_version",
        "region",
        "domain",
    ],
    "etcd": ["connection_string", "client_ca", "client_cert", "client_key"],
    "etcd-client": [
        "endpoints",
        "version",
        "secret-tls",
        "secret-user",
        "tls-ca",
        "username",
        "encryption-secret",
    ],
    "scale-run": ["version"],
}
LIKELY = [
    "1.0",
    "3",
    "443",
    "99999999999999999999",
    "wss://192.0.2.1:17070/api",
    "https://[::1",
    "https://192.0.2.1:2379",
    "192.0.2.1:8443",
    "secret:cvq0000000000000000g",
    "a\nb",
    "٣",
    SERVER.certificate,
    CLIENT.key,
    CLIENT.certificate,
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "-----BEGIN CERTIFICATE-----",
]
TEXT = st.sampled_from(LIKELY) | st.text(max_size=40)
_NAMES = """user password addresses cacert token certificate client-certificate client-key endpoints cert key username
project user-domain project-domain auth-url application-credential-id application-credential-secret region"""
SECRET_KEYS = st.sampled_from(_NAMES.split()) | st.text(string.ascii_lowercase + "-", min_size=3, max_size=10)


def a_bag(name: str) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(KEYS[name]), TEXT)


@st.composite
def relations(draw: st.DrawFn) -> list[testing.Relation]:
    return [
        testing.Relation(
            name,
            remote_app_data=draw(a_bag(name)),
            remote_units_data=dict(enumerate(draw(st.lists(a_bag(name), min_size=1, max_size=2)))),
        )
        for name in draw(st.sets(st.sampled_from(sorted(KEYS))))
    ]


def one_line(text: str) -> bool:
    return text.isprintable() and len(text) < 400


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    related=relations(),
    secret=st.none() | st.dictionaries(SECRET_KEYS, TEXT, min_size=1, max_size=5),
    projects=st.text(max_size=20),
    leader=st.booleans(),
)
def test_nothing_that_others_write_raises(
    related: list[testing.Relation], secret: dict[str, str] | None, projects: str, leader: bool
) -> None:
    """Given anything in any bag, secret and option, twice, then there is no exception, what is missing is one line,
    and no key is in what is sent."""
    config: dict[str, Any] = {"lxd-projects": projects}
    secrets: list[testing.Secret] = []
    if secret is not None:
        secrets.append(testing.Secret(secret, owner=None))
        config["credentials"] = secrets[0].id
    out, _ = after(context(), state(*related, config=config, secrets=secrets, leader=leader))
    out, access = after(context(), out)
    assert set(access) == set(KINDS)
    for found in access.values():
        assert one_line(found.missing)
        assert "PRIVATE KEY" not in found.missing + repr(found)
        assert bool(found.missing) or bool(found.files) or found.kind == "etcd"
    assert "PRIVATE KEY" not in everything_sent(out)


@settings(max_examples=200, deadline=None)
@given(changed=st.dictionaries(st.sampled_from([*sorted(KEYSTONE), "ca_cert"]), TEXT, min_size=1, max_size=3))
def test_what_is_made_of_keystones_answer_is_what_the_engine_reads(changed: dict[str, str]) -> None:
    """Given an answer with anything in some of its places, then it is refused in a line, or logged in by as it says."""
    answer = KEYSTONE | changed
    relation = testing.Relation("identity-credentials", remote_units_data={0: answer})
    _, access = after(context(), state(relation))
    found = access["openstack"]
    assert one_line(found.missing)
    assert bool(found.missing) != bool(found.files)
    if found.files:
        with tempfile.TemporaryDirectory() as directory:
            read = as_the_engine_reads(found, Path(directory))
        assert read.identity["password"]["user"]["password"] == answer["credentials_password"]
        assert read.identity["password"]["user"]["name"] == answer["credentials_username"]
        assert urlsplit(read.auth_url).port == int(answer["credentials_port"])


@pytest.mark.parametrize("event", ["created", "changed", "departed", "broken"])
@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize("name", [*META["requires"], *META["provides"]])
def test_an_empty_relation_is_survived_at_every_event(name: str, leader: bool, event: str) -> None:
    """Given nothing in the other side's bags, when a relation comes, changes and goes, then there is no exception
    and no access."""
    kind = testing.SubordinateRelation if name == "cos-agent" else testing.Relation
    relation = kind(name)
    ctx = context()
    _, access = after(ctx, state(relation, leader=leader), getattr(ctx.on, f"relation_{event}")(relation))
    assert all(found.missing and not found.files for found in access.values())


def test_a_related_target_that_goes_is_missing_again() -> None:
    """Given access by a relation, when that is broken, then what to relate is said."""
    relation = testing.Relation("etcd", remote_units_data={0: {"connection_string": "http://192.0.2.1:2379"}})
    ctx = context()
    _, access = after(ctx, state(relation), ctx.on.relation_broken(relation))
    assert access["etcd"].missing.startswith("juju integrate ")


def test_again_changes_nothing() -> None:
    """Given all endpoints are related, when an event comes again, then no bag and no secret is written again."""
    both = {
        name: testing.Relation(name) for name in (*META["requires"], *META["provides"]) if name != "cos-agent"
    }
    first, _ = after(context(), state(*both.values(), testing.SubordinateRelation("cos-agent")))
    again, _ = after(context(), first)
    assert again.relations == first.relations
    assert again.secrets == first.secrets


def test_what_is_sent_has_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Given secrets and all relations with secrets in them, then none is in what is sent, logged or shown."""
    keystone = {"credentials_host": "192.0.2.5", "credentials_port": "5000", "credentials_username": "a"}
    keystone |= {"credentials_password": PASSWORD, "credentials_project": "p", "region": "r"}
    etcd = {"connection_string": "https://192.0.2.1:2379", "client_ca": "x", "client_key": PASSWORD}
    related = [
        testing.Relation("identity-credentials", remote_units_data={0: keystone}),
        testing.Relation("etcd", remote_units_data={0: etcd | {"client_cert": PASSWORD}}),
        testing.Relation("lxd", remote_app_data={"version": PASSWORD[:3]}),
        testing.Relation("etcd-client"),
        testing.Relation("metrics-endpoint"),
        testing.Relation("grafana-dashboard"),
        testing.SubordinateRelation("cos-agent"),
    ]
    secret = testing.Secret({"user": "bob", "password": PASSWORD}, owner=None)
    before = state(*related, config={"credentials": secret.id}, secrets=[secret])
    out, access = after(context(), before)
    keys = [
        each.tracked_content["private-key"] for each in out.secrets if "private-key" in each.tracked_content
    ]
    assert len(keys) == 2
    seen = (
        everything_sent(out)
        + repr(access)
        + caplog.text
        + json.dumps([each.missing for each in access.values()])
    )
    assert PASSWORD not in seen
    assert not any(key in seen or json.dumps(key)[1:-1] in seen for key in keys)
