"""What we ask of targets by relation, and what we understand of their answers."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
import yaml
from cryptography import x509
from ops import testing
from tippingpoint_charm.access import TargetAccess

from tests.charms.related import (
    CLIENT,
    MODEL,
    PASSWORD,
    SERVER,
    after,
    context,
    credentials,
    found,
    state,
)
from tippingpoint.targets.lxd.access import der, fingerprint

FINGERPRINT = fingerprint(der(SERVER.certificate))
LXD = {
    "version": "1.0",
    "certificate": SERVER.certificate,
    "certificate_fingerprint": FINGERPRINT,
    "addresses": "192.0.2.1:8443,[2001:db8::2]:8443",
}


def lxd(**more: Any) -> testing.Relation:
    return testing.Relation("lxd", remote_app_name="lxd", **more)


def asked(**more: Any) -> testing.State:
    """The state once LXD was asked for its trust."""
    return after(context(), state(lxd(**more)))[0]


def answered(before: testing.State, name: str = "lxd", **changed: Any) -> testing.State:
    """The state once the other side of a relation wrote this."""
    relation = before.get_relations(name)[0]
    return dataclasses.replace(before, relations=[dataclasses.replace(relation, **changed)])


class TestLxd:
    def test_asks_for_trust_in_a_project_of_ours_when_none_is_configured(self) -> None:
        """Given no lxd-projects, when LXD is related, then projects is sent all the same: absent is everything."""
        out = asked()
        sent = out.get_relations("lxd")[0].local_unit_data
        assert sent["version"] == "1.0"
        assert sent["projects"] == "tippingpoint"
        certificate = x509.load_pem_x509_certificate(sent["certificate"].encode())
        assert certificate.subject.rfc4514_string() == "CN=load-claimer-0"

    def test_asks_for_the_configured_projects(self) -> None:
        out, _ = after(context(), state(lxd(), config={"lxd-projects": " a, b ,a"}))
        assert out.get_relations("lxd")[0].local_unit_data["projects"] == "a,b"

    @pytest.mark.parametrize("projects", ["a/b", "*", "a b", "-x", "a\nb", "x" * 64])
    def test_sends_no_certificate_while_a_project_cannot_be_one(self, projects: str) -> None:
        """Given a malformed name, then nothing is sent, so that nothing is trusted for more than was meant."""
        out, access = after(context(), state(lxd(), config={"lxd-projects": projects}))
        assert "certificate" not in out.get_relations("lxd")[0].local_unit_data
        assert access["lxd"].missing.startswith("lxd-projects: ")
        assert "\n" not in access["lxd"].missing

    def test_keeps_the_key_in_a_secret_of_the_unit(self) -> None:
        """Given a key pair was made, then it is this unit's secret, and stays the same at the next event."""
        out = asked()
        (secret,) = out.secrets
        assert secret.owner == "unit"
        key = secret.tracked_content["private-key"]
        relation = out.get_relations("lxd")[0]
        assert key not in json.dumps([dict(relation.local_unit_data), dict(relation.local_app_data)])
        again, _ = after(context(), out)
        assert again.get_relations("lxd")[0].local_unit_data == relation.local_unit_data
        assert len(list(again.secrets)) == 1

    def test_a_relation_made_anew_gets_the_same_certificate(self) -> None:
        """Given LXD was related before, when it is again, then the certificate is the one whose key we have."""
        out = asked()
        before = out.get_relations("lxd")[0].local_unit_data["certificate"]
        again, _ = after(context(), state(lxd(), secrets=out.secrets))
        assert again.get_relations("lxd")[0].local_unit_data["certificate"] == before

    @pytest.mark.parametrize("cluster", [True, False])
    def test_takes_a_clusters_answer_and_a_single_servers(self, cluster: bool) -> None:
        """Given an answer in the application's bag (a cluster) or a unit's, then it is the target's credentials."""
        bags = {"remote_app_data": LXD} if cluster else {"remote_units_data": {0: {}, 1: LXD}}
        access = found(answered(asked(), **bags), "lxd")
        assert access.missing == ""
        assert access.target == {
            "kind": "lxd",
            "credentials": "{credentials}/lxd.yaml",
            "projects": ["tippingpoint"],
        }
        assert "192.0.2.1:8443,[2001:db8::2]:8443" in access.files["lxd.yaml"]

    def test_of_several_servers_the_first_by_number_is_the_target(self) -> None:
        units = {number: LXD | {"addresses": f"192.0.2.{number}:8443"} for number in (10, 9)}
        access = found(answered(asked(), remote_units_data=units), "lxd")
        assert "192.0.2.9:8443" in access.files["lxd.yaml"]
        assert "192.0.2.10" not in access.files["lxd.yaml"]

    def test_waits_for_an_answer_and_names_the_projects_it_takes(self) -> None:
        """Given LXD refuses a project that does not exist without a word, then what to do is said."""
        access = found(asked(), "lxd")
        assert access.missing == (
            "lxd: waiting for LXD to trust us; its projects must exist: lxc project create tippingpoint"
        )

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"version": "2.0"}, "lxd: version 2.0: expected 1.0"),
            ({"certificate": ""}, "lxd: waiting for LXD's certificate"),
            ({"addresses": ""}, "lxd: waiting for LXD's addresses"),
            ({"certificate": "none"}, "lxd: LXD's certificate: expected one (PEM)"),
            (
                {"certificate_fingerprint": "00"},
                "lxd: certificate_fingerprint: 00: expected that of LXD's certificate",
            ),
            (
                {"addresses": "http://x/y"},
                "lxd: expected `addresses` with at least one host:port, separated by commas",
            ),
        ],
    )
    def test_says_what_is_wrong_with_an_answer(self, changed: dict[str, str], said: str) -> None:
        access = found(answered(asked(), remote_app_data=LXD | changed), "lxd")
        assert access.missing == said
        assert access.files == {}

    def test_other_projects_take_a_new_relation(self) -> None:
        """Given LXD trusts us for a project, when another is configured, then nothing is sent that LXD would ignore,
        and the commands are named that make it so."""
        trusted = answered(asked(), remote_app_data=LXD)
        changed = dataclasses.replace(trusted, config={"lxd-projects": "other"})
        out, access = after(context(), changed)
        assert out.get_relations("lxd")[0].local_unit_data["projects"] == "tippingpoint"
        assert access["lxd"].missing == (
            "lxd: LXD trusts us for the projects tippingpoint: to change them, juju remove-relation "
            "load-claimer:lxd lxd, then juju integrate them again"
        )

    def test_other_projects_are_sent_while_lxd_has_not_answered(self) -> None:
        out, _ = after(context(), dataclasses.replace(asked(), config={"lxd-projects": "other"}))
        assert out.get_relations("lxd")[0].local_unit_data["projects"] == "other"

    def test_the_relation_goes_before_the_secret(self) -> None:
        """Given both, then the relation says how LXD is reached; the secret may be another target's."""
        secret = testing.Secret({"user": "bob", "password": PASSWORD}, owner=None)
        both = answered(asked(), remote_app_data=LXD)
        both = dataclasses.replace(both, config={"credentials": secret.id}, secrets=[*both.secrets, secret])
        assert found(both, "lxd").missing == ""


ETCD = {
    "connection_string": "https://192.0.2.1:2379,https://192.0.2.2:2379",
    "client_ca": SERVER.certificate,
    "client_cert": CLIENT.certificate,
    "client_key": CLIENT.key,
}


class TestEtcd:
    def test_takes_endpoints_and_certificates_of_the_first_unit_that_has_them(self) -> None:
        relation = testing.Relation("etcd", remote_units_data={0: {}, 1: ETCD})
        access = found(state(relation), "etcd")
        assert access.missing == ""
        assert access.target == {
            "kind": "etcd",
            "endpoints": ["https://192.0.2.1:2379", "https://192.0.2.2:2379"],
            "ca": "{credentials}/etcd-ca.pem",
            "cert": "{credentials}/etcd-cert.pem",
            "key": "{credentials}/etcd-key.pem",
        }
        assert access.files["etcd-key.pem"] == CLIENT.key

    def test_an_etcd_without_tls_needs_no_certificates(self) -> None:
        relation = testing.Relation(
            "etcd", remote_units_data={0: {"connection_string": "http://192.0.2.1:2379"}}
        )
        access = found(state(relation), "etcd")
        assert access.missing == ""
        assert access.target == {"kind": "etcd", "endpoints": ["http://192.0.2.1:2379"]}

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"connection_string": ""}, "etcd: waiting for etcd's connection_string"),
            ({"client_key": ""}, "etcd: waiting for etcd's client_ca, client_cert and client_key"),
            ({"connection_string": "https://a b"}, "etcd: endpoints.0: http(s)://host:port"),
            ({"client_ca": "none"}, "etcd: client_ca: expected a PEM file with certificates"),
        ],
    )
    def test_says_what_is_wrong(self, changed: dict[str, str], said: str) -> None:
        relation = testing.Relation("etcd", remote_units_data={0: ETCD | changed})
        access = found(state(relation), "etcd")
        assert access.missing == said


def shared(content: dict[str, str]) -> testing.Secret:
    return testing.Secret(content, owner=None)


def etcd_client(**bag: str) -> testing.Relation:
    return testing.Relation("etcd-client", remote_app_name="charmed-etcd", remote_app_data=bag)


def user_of_etcd(**changed: str) -> tuple[testing.State, testing.State]:
    """The state after we asked, and the one after Charmed etcd answered."""
    out, _ = after(context(), state(etcd_client()))
    tls, user = (
        shared({"tls": "True", "tls-ca": SERVER.certificate}),
        shared({"username": "load-claimer-5e3c9a1e"}),
    )
    bag = {
        "endpoints": "192.0.2.1:2379,192.0.2.2:2379",
        "version": "3.6.1",
        "secret-tls": tls.id,
        "secret-user": user.id,
    }
    bag = {key: value for key, value in (bag | changed).items() if value}
    relation = dataclasses.replace(out.get_relations("etcd-client")[0], remote_app_data=bag)
    return out, dataclasses.replace(out, relations=[relation], secrets=[*out.secrets, tls, user])


class TestEtcdClient:
    def test_the_leader_asks_for_a_user_below_our_prefix(self) -> None:
        """Given Charmed etcd is related, then prefix and the secret with our certificate are in the application's bag
        as data_interfaces has them, the secret is granted and has no key in it."""
        out, _ = user_of_etcd()
        sent = out.get_relations("etcd-client")[0].local_app_data
        assert sent["prefix"] == "/tippingpoint/"
        assert json.loads(sent["provided-secrets"]) == ["mtls-cert"]
        assert {"username", "tls-ca"} <= set(json.loads(sent["requested-secrets"]))
        (mtls,) = [secret for secret in out.secrets if secret.id == sent["secret-mtls"]]
        assert mtls.owner == "app"
        assert mtls.remote_grants
        assert list(mtls.tracked_content) == ["mtls-cert"]
        certificate = x509.load_pem_x509_certificate(mtls.tracked_content["mtls-cert"].encode())
        assert certificate.subject.rfc4514_string() == f"CN=load-claimer-{MODEL.uuid[:8]}"
        # What charmed etcd refuses: an authority's certificate.
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        assert not constraints.ca

    def test_a_unit_that_does_not_lead_asks_for_nothing(self) -> None:
        out, access = after(context(), state(etcd_client(), leader=False))
        assert not out.get_relations("etcd-client")[0].local_app_data
        assert list(out.secrets) == []
        assert (
            access["etcd"].missing
            == "etcd-client: waiting for etcd's endpoints, which it publishes once TLS is enabled"
        )

    @pytest.mark.parametrize("leader", [True, False])
    def test_every_unit_takes_the_answer(self, leader: bool) -> None:
        """Given endpoints, user and authority, then each unit has them, with the key that the leader made."""
        _, answer = user_of_etcd()
        access = found(dataclasses.replace(answer, leader=leader), "etcd")
        assert access.missing == ""
        assert access.target["endpoints"] == ["https://192.0.2.1:2379", "https://192.0.2.2:2379"]
        assert access.files["etcd-ca.pem"].strip() == SERVER.certificate.strip()
        assert "PRIVATE KEY" in access.files["etcd-key.pem"]

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            (
                {"endpoints": ""},
                "etcd-client: waiting for etcd's endpoints, which it publishes once TLS is enabled",
            ),
            ({"secret-user": ""}, "etcd-client: waiting for a user from etcd (secret-user)"),
            ({"secret-tls": ""}, "etcd-client: waiting for etcd's authority (tls-ca in secret-tls)"),
            (
                {"secret-tls": "secret:cvq0000000000000000g"},
                "etcd-client: secret-tls: expected a secret that etcd grants us",
            ),
            (
                {"encryption-secret": "secret:x"},
                "etcd-client: charmed-etcd: expected a Charmed etcd of this model",
            ),
        ],
    )
    def test_says_what_is_missing(self, changed: dict[str, str], said: str) -> None:
        _, answer = user_of_etcd(**changed)
        assert found(answer, "etcd").missing == said


# What Keystone's charm answers (hooks/keystone_utils.py, add_credentials_to_keystone).
KEYSTONE = {
    "auth_host": "192.0.2.6",
    "auth_port": "35357",
    "auth_protocol": "https",
    "credentials_host": "192.0.2.5",
    "credentials_port": "5000",
    "credentials_protocol": "https",
    "credentials_username": "load-claimer",
    "credentials_password": PASSWORD,
    "credentials_project": "tippingpoint",
    "credentials_project_id": "0c1f",
    "credentials_user_domain_name": "service_domain",
    "credentials_user_domain_id": "7d2e",
    "credentials_project_domain_name": "service_domain",
    "credentials_project_domain_id": "7d2e",
    "domain": "service_domain",
    "api_version": "3",
    "region": "RegionOne",
}
WAITING = (
    "identity-credentials: waiting for a user from Keystone; keystone-k8s creates only administrators "
    "and is not asked: give this application a secret instead"
)


def keystone(**bag: str) -> testing.Relation:
    """Keystone of two units, the second of which leads and has answered with this."""
    units = {0: {"private-address": "192.0.2.7"}, 1: {key: text for key, text in bag.items() if text}}
    return testing.Relation("identity-credentials", remote_app_name="keystone", remote_units_data=units)


def cloud(access: TargetAccess) -> dict[str, Any]:
    return yaml.safe_load(access.files["clouds.yaml"])["clouds"]["tippingpoint"]


class TestKeystone:
    def test_asks_for_a_member_and_never_for_an_administrator(self) -> None:
        """Given Keystone is related, then every unit sends requested_grants: without it we would be admin. Nothing is
        in the application's bag, where keystone-k8s would see a request for an administrator."""
        out, _ = after(context(), state(testing.Relation("identity-credentials")))
        relation = out.get_relations("identity-credentials")[0]
        assert relation.local_unit_data["requested_grants"] == "member"
        assert relation.local_unit_data["requested_roles"] == "member"
        assert relation.local_unit_data["username"] == "load-claimer"
        assert relation.local_unit_data["project"] == "tippingpoint"
        assert relation.local_unit_data["domain"] == "service_domain"
        assert relation.local_app_data == {}
        unit, _ = after(context(), state(testing.Relation("identity-credentials"), leader=False))
        assert unit.get_relations("identity-credentials")[0].local_unit_data["requested_grants"] == "member"

    def test_makes_a_cloud_of_the_answer(self) -> None:
        """Given names and ids, then ids are what a project and its domains are known by."""
        access = found(state(keystone(**KEYSTONE)), "openstack")
        assert access.missing == ""
        assert access.target == {
            "kind": "openstack",
            "credentials": "{credentials}/clouds.yaml",
            "cloud": "tippingpoint",
        }
        assert cloud(access) == {
            "auth": {
                "auth_url": "https://192.0.2.5:5000/v3",
                "username": "load-claimer",
                "password": PASSWORD,
                "project_id": "0c1f",
                "user_domain_id": "7d2e",
                "project_domain_id": "7d2e",
            },
            "region_name": "RegionOne",
        }

    def test_names_will_do(self) -> None:
        """Given a Keystone that tells no ids and no domains, then its names, and the domain that we asked for."""
        needed = {
            key: text for key, text in KEYSTONE.items() if not key.endswith("_id") and "domain" not in key
        }
        auth = cloud(found(state(keystone(**needed)), "openstack"))["auth"]
        assert auth["project_name"] == "tippingpoint"
        assert (auth["user_domain_name"], auth["project_domain_name"]) == ("service_domain", "service_domain")

    @pytest.mark.parametrize(
        ("told", "region"), [("One Two", "One"), (" ", None), ("", None), ("RegionOne", "RegionOne")]
    )
    def test_of_several_regions_it_is_the_first(self, told: str, region: str | None) -> None:
        access = found(state(keystone(**KEYSTONE | {"region": told})), "openstack")
        assert cloud(access).get("region_name") == region

    @pytest.mark.parametrize("host", ["2001:db8::5", "[2001:db8::5]"])
    def test_an_address_of_ipv6_is_in_brackets(self, host: str) -> None:
        access = found(state(keystone(**KEYSTONE | {"credentials_host": host})), "openstack")
        assert cloud(access)["auth"]["auth_url"] == "https://[2001:db8::5]:5000/v3"

    @pytest.mark.parametrize(
        "told", [SERVER.certificate, base64.b64encode(SERVER.certificate.encode()).decode()]
    )
    def test_an_authority_in_the_answer_is_what_tls_is_verified_by(self, told: str) -> None:
        access = found(state(keystone(**KEYSTONE | {"ca_cert": told})), "openstack")
        assert access.missing == ""
        assert access.files["openstack-ca.pem"].strip() == SERVER.certificate.strip()
        assert cloud(access)["cacert"] == "openstack-ca.pem"

    def test_an_authority_in_a_secret_goes_before_that(self) -> None:
        given = credentials(cacert=CLIENT.certificate)
        access = found(state(keystone(**KEYSTONE, ca_cert=SERVER.certificate), **given), "openstack")
        assert access.missing == ""
        assert access.files["openstack-ca.pem"] == CLIENT.certificate.strip()

    def test_the_secret_of_another_target_is_left_alone(self) -> None:
        given = credentials(user="bob", password=PASSWORD, cacert=SERVER.certificate)
        access = found(state(keystone(**KEYSTONE), **given), "openstack")
        assert access.missing == ""
        assert list(access.files) == ["clouds.yaml"]

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"credentials_password": ""}, WAITING),
            ({"credentials_host": ""}, "identity-credentials: waiting for Keystone's credentials_host"),
            ({"credentials_project": ""}, "identity-credentials: waiting for Keystone's credentials_project"),
            ({"api_version": "2"}, "identity-credentials: api_version: 2: expected 3"),
            (
                {"credentials_protocol": "ftp"},
                "identity-credentials: credentials_protocol: ftp: expected http or https",
            ),
            ({"credentials_host": "a/b"}, "identity-credentials: a/b 5000: expected a host and a port"),
            (
                {"credentials_port": "99999"},
                "identity-credentials: 192.0.2.5 99999: expected a host and a port",
            ),
            (
                {"ca_cert": "none!"},
                "identity-credentials: ca_cert: expected certificates (PEM), as they are or in base64",
            ),
            (
                {"ca_cert": "bm9uZQ=="},
                "identity-credentials: ca_cert: expected certificates of an authority (PEM)",
            ),
        ],
    )
    def test_says_what_is_wrong(self, changed: dict[str, str], said: str) -> None:
        access = found(state(keystone(**KEYSTONE | changed)), "openstack")
        assert access.missing == said
        assert access.files == {}

    def test_a_keystone_that_has_not_answered_is_waited_for(self) -> None:
        assert found(state(testing.Relation("identity-credentials")), "openstack").missing == WAITING
