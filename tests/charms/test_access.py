"""What access there is without relations: the secret of `credentials`, and the controller that a unit is on."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st
from ops import testing
from tippingpoint_charm.access import find_access

from tests.charms.related import (
    CLIENT,
    PASSWORD,
    SERVER,
    after,
    as_the_engine_reads,
    context,
    credentials,
    found,
    state,
)

HOW = (
    "juju add-secret tippingpoint {}, juju grant-secret tippingpoint load-claimer, "
    "juju config load-claimer credentials=secret:ID"
)
BOB = {"user": "bob", "password": PASSWORD}
WHOLE = BOB | {"addresses": "192.0.2.1:17070", "cacert": SERVER.certificate}
AGENT_PASSWORD = "the agent's own"


@pytest.fixture
def charm_root(tmp_path: Path) -> Path:
    """The charm's directory, beside which is an agent.conf as Juju writes them."""
    content = {
        "tag": "unit-load-claimer-0",
        "cacert": SERVER.certificate,
        "apiaddresses": ["192.0.2.7:17070", "[2001:db8::7]:17070"],
        "apipassword": AGENT_PASSWORD,
    }
    (tmp_path / "agent.conf").write_text("# format 2.0\n" + yaml.safe_dump(content))
    (tmp_path / "charm").mkdir()
    return tmp_path / "charm"


def content(access: Any, name: str = "juju.yaml") -> dict[str, Any]:
    return yaml.safe_load(access.files[name])


class TestJuju:
    def test_without_a_secret_the_commands_are_named_that_make_one(self) -> None:
        access = found(state(), "juju")
        assert access.missing == HOW.format("user=NAME password#file=FILE")
        assert access.files == {}

    def test_the_secret_may_say_everything(self) -> None:
        access = found(state(**credentials(**WHOLE)), "juju")
        assert access.missing == ""
        assert access.target == {"kind": "juju", "credentials": "{credentials}/juju.yaml"}
        assert content(access) == {
            "addresses": ["192.0.2.1:17070"],
            "ca": SERVER.certificate.strip(),
            "user": "bob",
            "password": PASSWORD,
        }

    def test_without_a_relation_it_is_the_controller_this_unit_is_on(self, charm_root: Path) -> None:
        """Given user and password only, then addresses and authority are the agent's, and its password is not read
        into anything."""
        access = found(state(**credentials(**BOB)), "juju", charm_root)
        assert access.missing == ""
        assert content(access)["addresses"] == ["192.0.2.7:17070", "[2001:db8::7]:17070"]
        assert content(access)["ca"] == SERVER.certificate
        assert AGENT_PASSWORD not in str(access.files)

    def test_the_hooks_addresses_go_before_the_files(
        self, charm_root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JUJU_API_ADDRESSES", "192.0.2.8:17070 192.0.2.9:17070")
        access = found(state(**credentials(**BOB)), "juju", charm_root)
        assert content(access)["addresses"] == ["192.0.2.8:17070", "192.0.2.9:17070"]

    @pytest.mark.parametrize(
        "text", ["", "cacert: [", "- a", "cacert: 3\napiaddresses: 4", "\x00", "cacert: none"]
    )
    def test_an_agent_file_that_says_nothing_is_as_none(
        self, charm_root: Path, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("JUJU_API_ADDRESSES", raising=False)
        (charm_root.parent / "agent.conf").write_text(text)
        access = found(state(**credentials(**BOB)), "juju", charm_root)
        assert access.missing == (
            "credentials: addresses: expected the controller's in the secret, as this unit's agent.conf has none"
        )

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("wss://192.0.2.3:17070/api", "192.0.2.3:17070"),
            ("https://[2001:db8::3]:443", "[2001:db8::3]:443"),
            ("controller.example.com", "controller.example.com:17070"),
        ],
    )
    def test_a_related_controller_says_where_it_is(self, charm_root: Path, url: str, address: str) -> None:
        relation = testing.Relation("controller", remote_app_data={"controller-url": url, "is-juju": "True"})
        access = found(state(relation, **credentials(**BOB, cacert=SERVER.certificate)), "juju", charm_root)
        assert access.missing == ""
        assert content(access)["addresses"] == [address]

    def test_the_authority_of_ours_is_good_for_our_controller_only(self, charm_root: Path) -> None:
        """Given no `cacert` in the secret, when a controller is related, then ours is used where it is that one."""
        ours, other = (
            testing.Relation("controller", remote_app_data={"controller-url": f"wss://{address}/api"})
            for address in ("192.0.2.7:17070", "192.0.2.3:17070")
        )
        assert (
            content(found(state(ours, **credentials(**BOB)), "juju", charm_root))["ca"] == SERVER.certificate
        )
        access = found(state(other, **credentials(**BOB)), "juju", charm_root)
        assert access.files == {}
        assert access.missing == (
            "credentials: cacert: expected the controller's in the secret, as 192.0.2.3:17070 is not known to be the "
            "controller that this unit is on"
        )

    def test_the_leaders_unit_says_where_it_is_over_http(self, charm_root: Path) -> None:
        """Given Juju's own keys in every unit's bag, then only the unit that has a port is the API's."""
        units = {
            0: {"private-address": "192.0.2.10", "ingress-address": "192.0.2.10"},
            1: {"hostname": "192.0.2.11", "private-address": "192.0.2.11", "port": "17070"},
        }
        relation = testing.Relation("controller-http", remote_units_data=units)
        access = found(state(relation, **credentials(**BOB, cacert=SERVER.certificate)), "juju", charm_root)
        assert content(access)["addresses"] == ["192.0.2.11:17070"]

    def test_addresses_in_the_secret_go_before_a_relation(self) -> None:
        relation = testing.Relation(
            "controller", remote_app_data={"controller-url": "wss://192.0.2.3:17070/api"}
        )
        access = found(state(relation, **credentials(**WHOLE)), "juju")
        assert content(access)["addresses"] == ["192.0.2.1:17070"]

    @pytest.mark.parametrize(
        ("relation", "said"),
        [
            (
                testing.Relation("controller"),
                "controller: waiting for the controller's controller-url: juju config -m controller controller "
                "controller-url shows it",
            ),
            (
                testing.Relation("controller", remote_app_data={"controller-url": "wss://:x/"}),
                "controller: wss://:x/: expected a controller-url, wss://HOST:PORT/api",
            ),
            (
                testing.Relation("controller-http"),
                "controller-http: waiting for the controller's hostname and port",
            ),
            (
                testing.Relation("controller-http", remote_units_data={0: {"hostname": "a", "port": "many"}}),
                "controller-http: a many: expected a host and a port",
            ),
        ],
    )
    def test_says_what_a_related_controller_lacks(
        self, charm_root: Path, relation: testing.Relation, said: str
    ) -> None:
        assert found(state(relation, **credentials(**BOB)), "juju", charm_root).missing == said

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            (
                {"password": ""},
                "credentials: expected a secret with user, password (and addresses, cacert); and nothing else",
            ),
            (
                {"users": "x"},
                "credentials: expected a secret with user, password (and addresses, cacert); and nothing else",
            ),
            ({"addresses": "192.0.2.1"}, "credentials: expected `addresses` with at least one host:port"),
            (
                {"cacert": "none"},
                "credentials: expected the controller's CA certificate in `cacert` (PEM)",
            ),
        ],
    )
    def test_says_what_is_wrong_with_a_secret(self, changed: dict[str, str], said: str) -> None:
        given = {key: text for key, text in (WHOLE | changed).items() if text}
        assert found(state(**credentials(**given)), "juju").missing == said


class TestSecrets:
    def test_one_that_is_not_granted_names_the_command(self) -> None:
        """Given a secret that Juju does not let us see (never granted, or removed), then the grant is named."""
        access = found(state(config={"credentials": "secret:cvq0000000000000000g"}), "juju")
        assert access.missing == (
            "juju grant-secret secret:cvq0000000000000000g load-claimer: "
            "config credentials names a secret that is not granted"
        )

    def test_a_rotated_one_is_read_anew(self) -> None:
        """Given a revision that we have not seen, when it changes, then access has the new content."""
        secret = testing.Secret(WHOLE, latest_content=WHOLE | {"password": "the new one"}, owner=None)
        ctx = context()
        before = state(config={"credentials": secret.id}, secrets=[secret])
        _, access = after(ctx, before, ctx.on.secret_changed(secret))
        assert content(access["juju"])["password"] == "the new one"

    def test_one_that_is_removed_is_missing_again(self) -> None:
        given = credentials(**WHOLE)
        out, access = after(context(), state(**given))
        assert access["juju"].missing == ""
        assert "granted" in found(dataclasses.replace(out, secrets=[]), "juju").missing

    def test_its_content_shows_nowhere(self, caplog: pytest.LogCaptureFixture) -> None:
        """Given secrets good and bad, then no message, log, status or printed access has what is in them."""
        for given in (
            WHOLE,
            WHOLE | {"cacert": PASSWORD},
            WHOLE | {"addresses": PASSWORD},
            {"token": PASSWORD},
        ):
            _, access = after(context(), state(**credentials(**given)))
            assert all(PASSWORD not in found.missing for found in access.values())
            assert PASSWORD not in repr(access)
        assert PASSWORD not in caplog.text

    def test_an_unknown_target_is_refused(self) -> None:
        ctx = context()
        with ctx(ctx.on.update_status(), state()) as manager:
            manager.run()
            access = find_access(manager.charm, "ceph")
        assert access.missing == "target: 'ceph': expected one of etcd, juju, lxd, maas, openstack, pacemaker"


def token() -> str:
    content = {
        "client_name": "load",
        "fingerprint": "0" * 64,
        "addresses": ["192.0.2.1:8443"],
        "secret": PASSWORD,
    }
    return base64.b64encode(json.dumps(content).encode()).decode()


KEYS = {
    "addresses": "192.0.2.1:8443",
    "certificate": SERVER.certificate,
    "client_certificate": CLIENT.certificate,
    "client_key": CLIENT.key,
}


class TestLxd:
    def test_without_anything_relation_and_secret_are_named(self) -> None:
        assert found(state(), "lxd").missing == (
            "juju integrate load-claimer:lxd lxd:https; or "
            + HOW.format("token#file=FILE (of lxc config trust add)")
        )

    def test_a_secret_with_a_certificate(self) -> None:
        access = found(state(**credentials(**KEYS)), "lxd")
        assert access.missing == ""
        assert access.target == {"kind": "lxd", "credentials": "{credentials}/lxd.yaml"}
        assert content(access, "lxd.yaml")["client_key"] == CLIENT.key.strip()

    def test_configured_projects_are_filled(self) -> None:
        """Given lxd-projects, then the target has them: a certificate may be restricted to them."""
        given = credentials(**KEYS)
        given["config"]["lxd-projects"] = "a,b"
        assert found(state(**given), "lxd").target["projects"] == ["a", "b"]

    def test_a_token(self) -> None:
        access = found(state(**credentials(token=token())), "lxd")
        assert access.missing == ""
        assert access.target == {"kind": "lxd", "token": "{credentials}/lxd.token"}
        assert access.files == {"lxd.token": token()}

    def test_a_token_of_incus(self) -> None:
        """As `incus config trust add` of 6.0.4 prints it, whose end is year 1 where it has none."""
        fields = {
            "client_name": "tippingpoint",
            "fingerprint": "0" * 64,
            "addresses": ["192.0.2.1:8443", "[2001:db8::1]:8443"],
            "secret": "s" * 64,
            "expires_at": "0001-01-01T00:00:00Z",
        }
        text = base64.b64encode(json.dumps(fields).encode()).decode()
        access = found(state(**credentials(token=f"{text}\n")), "lxd")
        assert access.missing == ""
        assert access.files == {"lxd.token": text}

    def test_a_token_is_no_good_for_several_units(self) -> None:
        access = found(state(planned_units=2, **credentials(token=token())), "lxd")
        assert access.missing == (
            "credentials: token: expected a single unit, as a token serves one unit only: give addresses, certificate, "
            "client-certificate and client-key instead"
        )

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (
                {"token": "x"},
                "credentials: (not shown): expected a trust token, as `lxc config trust add` prints it: base64 of JSON",
            ),
            (
                {"addresses": "192.0.2.1:8443"},
                "credentials: expected a secret with token; or addresses, certificate, client-certificate, client-key; "
                "and nothing else",
            ),
            (
                KEYS | {"client_key": "none"},
                "credentials: client-key: expected a PEM key without a password",
            ),
            (
                KEYS | {"certificate": "none"},
                "credentials: certificate: expected a certificate (PEM)",
            ),
        ],
    )
    def test_says_what_is_wrong_with_a_secret(self, given: dict[str, str], said: str) -> None:
        assert found(state(**credentials(**given)), "lxd").missing == said


class TestEtcd:
    def test_without_anything_relation_and_secret_are_named(self) -> None:
        assert found(state(), "etcd").missing == (
            "juju integrate load-claimer:etcd-client charmed-etcd; or "
            + HOW.format("endpoints=https://HOST:2379 cacert#file=FILE cert#file=FILE key#file=FILE")
        )

    def test_a_secret_with_a_user(self) -> None:
        given = credentials(
            endpoints="https://192.0.2.1:2379, https://192.0.2.2:2379",
            cacert=SERVER.certificate,
            username="bob",
            password=PASSWORD,
        )
        access = found(state(**given), "etcd")
        assert access.missing == ""
        assert access.target == {
            "kind": "etcd",
            "endpoints": ["https://192.0.2.1:2379", "https://192.0.2.2:2379"],
            "ca": "{credentials}/etcd-ca.pem",
            "credentials": "{credentials}/etcd.yaml",
        }
        assert content(access, "etcd.yaml") == {"username": "bob", "password": PASSWORD}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (
                {"endpoints": f"https://bob:{PASSWORD.replace(' ', '')}@192.0.2.1:2379"},
                "credentials: endpoints.0: http(s)://host:port, and the user in target.credentials",
            ),
            (
                {"endpoints": "https://192.0.2.1:2379", "cert": CLIENT.certificate},
                "credentials: cert and key go together: expected both or neither",
            ),
            (
                {"endpoints": "https://192.0.2.1:2379", "username": "bob"},
                "credentials: expected a secret with `username` and `password`, both of them text, and nothing else",
            ),
        ],
    )
    def test_says_what_is_wrong_with_a_secret(self, given: dict[str, str], said: str) -> None:
        assert found(state(**credentials(**given)), "etcd").missing == said


HACLUSTER = {"addresses": "192.0.2.1, 192.0.2.2", "user": "hacluster", "password": PASSWORD}
A_NODE = (
    "credentials: expected a secret with addresses, user, password (and port, tls, cacert, cert, key, remotes); "
    "and nothing else"
)


class TestPacemaker:
    def test_without_a_secret_the_commands_are_named_that_make_one(self) -> None:
        example = "addresses=HOST,HOST user=hacluster password#file=FILE cacert#file=FILE"
        assert found(state(), "pacemaker").missing == HOW.format(example)

    def test_certificates_are_verified_and_no_danger_is_told(self) -> None:
        """Given an authority, and a client's pair besides, then everything is in one file."""
        pair = {"cert": CLIENT.certificate, "key": CLIENT.key}
        for more in ({}, pair):
            given = credentials(**HACLUSTER, port="9899", cacert=SERVER.certificate, **more)
            access = found(state(**given), "pacemaker")
            assert access.missing == ""
            assert access.target == {"kind": "pacemaker", "credentials": "{credentials}/pacemaker.yaml"}
            assert access.address == "192.0.2.1"
            assert access.danger == ""
            assert content(access, "pacemaker.yaml") == {
                "addresses": ["192.0.2.1", "192.0.2.2"],
                "port": 9899,
                "user": "hacluster",
                "password": PASSWORD,
                "ca": SERVER.certificate.strip(),
                **{key: text.strip() for key, text in more.items()},
            }

    def test_addresses_of_remote_nodes_are_a_list(self) -> None:
        given = credentials(**HACLUSTER, tls="anonymous", remotes="192.0.2.8 192.0.2.9")
        assert content(found(state(**given), "pacemaker"), "pacemaker.yaml")["remotes"] == [
            "192.0.2.8",
            "192.0.2.9",
        ]

    def test_anonymous_tls_is_asked_for_and_its_danger_is_told(self) -> None:
        access = found(state(**credentials(**HACLUSTER, tls="anonymous")), "pacemaker")
        assert access.missing == ""
        assert access.target["tls"] == "anonymous"
        assert access.danger == "TLS is anonymous and can be intercepted: private networks only"
        assert content(access, "pacemaker.yaml").keys() == {"addresses", "user", "password"}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"addresses": "192.0.2.1", "user": "hacluster"}, A_NODE),
            (HACLUSTER | {"cacrt": "x"}, A_NODE),
            (
                HACLUSTER,
                "credentials: cacert: expected the nodes' CA (PEM), or tls=anonymous, which a man in the middle can "
                "read",
            ),
            (HACLUSTER | {"tls": "none"}, "credentials: tls: expected anonymous or verified"),
            (
                HACLUSTER | {"tls": "anonymous", "cacert": SERVER.certificate},
                "credentials: anonymous: expected verified, as the credentials have certificates",
            ),
            *(
                (HACLUSTER | {"port": port}, "credentials: port: expected a number from 1 to 65535")
                for port in ("0", "65536", "http", "9898.0", "-1", "\u0663")
            ),
            (
                HACLUSTER | {"cacert": "none"},
                "credentials: cacert, cert, key: expected PEM texts that belong together",
            ),
            (
                HACLUSTER | {"cacert": SERVER.certificate, "cert": CLIENT.certificate, "key": SERVER.key},
                "credentials: cacert, cert, key: expected PEM texts that belong together",
            ),
            (
                HACLUSTER | {"cacert": SERVER.certificate, "cert": CLIENT.certificate},
                "credentials: cert or key alone: expected both or neither",
            ),
            (
                HACLUSTER | {"addresses": " , ", "tls": "anonymous"},
                "credentials: addresses: expected HOST,HOST",
            ),
        ],
    )
    def test_says_what_is_wrong_with_a_secret(self, given: dict[str, str], said: str) -> None:
        access = found(state(**credentials(**given)), "pacemaker")
        assert access.missing == said
        assert access.files == {}


APPLICATION = {
    "auth_url": "https://192.0.2.5:5000/v3",
    "application_credential_id": "abc",
    "application_credential_secret": PASSWORD,
}
USER = {
    "auth_url": "https://keystone.example:5000",
    "username": "bob",
    "password": PASSWORD,
    "project": "load",
}
EITHER = (
    "credentials: expected a secret with auth-url, application-credential-id, application-credential-secret (and "
    "region, cacert); or auth-url, username, password, project (and user-domain, project-domain, region, cacert); and "
    "nothing else"
)


class TestOpenStack:
    def test_without_anything_relation_and_secret_are_named(self) -> None:
        assert found(state(), "openstack").missing == (
            "juju integrate load-claimer:identity-credentials keystone; or "
            + HOW.format("auth-url=URL application-credential-id=ID application-credential-secret#file=FILE")
        )

    def test_an_application_credential_is_a_cloud_of_its_own(self, tmp_path: Path) -> None:
        """Given one with an authority, then what is written is a clouds.yaml that the engine logs in by, and TLS is
        verified by that authority."""
        access = found(
            state(**credentials(**APPLICATION, region="RegionOne", cacert=SERVER.certificate)), "openstack"
        )
        assert access.missing == ""
        assert access.target == {
            "kind": "openstack",
            "credentials": "{credentials}/clouds.yaml",
            "cloud": "tippingpoint",
        }
        read = as_the_engine_reads(access, tmp_path)
        assert read.auth_url == "https://192.0.2.5:5000/v3"
        assert read.identity["application_credential"] == {"id": "abc", "secret": PASSWORD}
        assert read.scope is None
        assert read.region == "RegionOne"
        assert read.tls().cert_store_stats()["x509"] == 1

    def test_a_user_of_a_project(self, tmp_path: Path) -> None:
        """Given no domains and no authority, then they are those that OpenStack and the machine have by default."""
        access = found(state(**credentials(**USER)), "openstack")
        assert access.missing == ""
        read = as_the_engine_reads(access, tmp_path)
        assert read.auth_url == "https://keystone.example:5000/v3"
        user = {"name": "bob", "domain": {"name": "Default"}, "password": PASSWORD}
        assert read.identity["password"] == {"user": user}
        assert read.scope == {"project": {"name": "load", "domain": {"name": "Default"}}}
        assert (read.region, read.ca) == (None, None)

    def test_a_user_of_other_domains(self, tmp_path: Path) -> None:
        access = found(
            state(**credentials(**USER, user_domain="admin_domain", project_domain="other")), "openstack"
        )
        read = as_the_engine_reads(access, tmp_path)
        assert read.identity["password"]["user"]["domain"] == {"name": "admin_domain"}
        assert read.scope == {"project": {"name": "load", "domain": {"name": "other"}}}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"auth_url": APPLICATION["auth_url"]}, EITHER),
            (APPLICATION | {"username": "bob"}, EITHER),
            (USER | {"project": " "}, EITHER),
            (APPLICATION | {"user_domain": "default"}, EITHER),
            ({"cacert": SERVER.certificate}, EITHER),
            (
                APPLICATION | {"cacert": "none"},
                "credentials: cacert: expected certificates of an authority (PEM)",
            ),
            (
                USER | {"cacert": CLIENT.key},
                "credentials: cacert: expected certificates of an authority (PEM)",
            ),
            (USER | {"cacert": "\u00e9"}, "credentials: cacert: expected certificates of an authority (PEM)"),
            *(
                (which | {"auth_url": url}, "credentials: auth-url: expected http(s)://HOST:PORT/v3")
                for which in (APPLICATION, USER)
                for url in (
                    "192.0.2.5:5000",
                    "https://[::1",
                    f"https://bob:{PASSWORD[:7]}@h:5000",
                    "https://h:port",
                    "ftp://h",
                )
            ),
        ],
    )
    def test_says_what_is_wrong_with_a_secret(self, given: dict[str, str], said: str) -> None:
        access = found(state(**credentials(**given)), "openstack")
        assert access.missing == said
        assert access.files == {}


@hypothesis.given(
    texts=st.fixed_dictionaries(dict.fromkeys(("username", "password", "project"), st.text(min_size=1)))
)
@hypothesis.settings(max_examples=100, deadline=None)
def test_whatever_a_login_is_the_engine_reads_it_as_it_was_given(texts: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        access = found(state(**credentials(**USER | texts)), "openstack")
        if not all(text.strip() for text in texts.values()):
            assert access.missing == EITHER
            return
        read = as_the_engine_reads(access, Path(directory))
    # But for the newline that a file ends with, of password#file=FILE.
    assert read.identity["password"]["user"]["password"] == re.sub(r"\r?\n\Z", "", texts["password"])
    assert read.identity["password"]["user"]["name"] == texts["username"].strip()
    assert read.scope is not None
    assert read.scope["project"]["name"] == texts["project"].strip()
