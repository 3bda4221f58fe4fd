"""bundles/scale.yaml and its overlays, merged as Juju merges them: what they relate is there and fits."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "bundles" / "scale.yaml"
OVERLAYS = {path.stem: path for path in sorted((ROOT / "bundles" / "overlays").glob("*.yaml"))}
CHARMS = ["container-spawner", "load-claimer", "metrics-collector"]

# Endpoints of what others wrote, from their charms' metadata (charm-lxd, layer-etcd, layer-easyrsa, charm-keystone,
# juju-controller, opentelemetry-collector-operator, prometheus-k8s-operator, grafana-k8s-operator, all on GitHub).
THEIRS = {
    "lxd": {"https": ("provides", "lxd-https"), "metrics-endpoint": ("provides", "prometheus_scrape")},
    "etcd": {"db": ("provides", "etcd"), "certificates": ("requires", "tls-certificates")},
    "easyrsa": {"client": ("provides", "tls-certificates")},
    "keystone": {"identity-credentials": ("provides", "keystone-credentials")},
    "controller": {"dashboard": ("provides", "juju-dashboard")},
    "opentelemetry-collector": {
        "cos-agent": ("requires", "cos_agent"),
        "send-remote-write": ("requires", "prometheus_remote_write"),
        "grafana-dashboards-provider": ("provides", "grafana_dashboard"),
    },
    "prometheus-receive-remote-write": {
        "receive-remote-write": ("provides", "prometheus_remote_write"),
    },
    "prometheus-scrape": {"metrics-endpoint": ("requires", "prometheus_scrape")},
    "grafana-dashboards": {"grafana-dashboard": ("requires", "grafana_dashboard")},
}

CONSTRAINTS = re.compile(r"(cores=\d+|mem=\d+G|tags=[a-z-]+)")


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def merged(*overlays: str) -> dict[str, Any]:
    """As ReadAndMergeBundleData of juju/charm does: machines replace, relations are added, applications are merged
    field by field and their maps entry by entry."""
    bundle = copy.deepcopy(read(BUNDLE))
    for overlay in (read(OVERLAYS[name]) for name in overlays):
        bundle["relations"] += overlay.get("relations", [])
        bundle.setdefault("saas", {}).update(overlay.get("saas", {}))
        if "machines" in overlay:
            bundle["machines"] = overlay["machines"]
        for name, added in overlay.get("applications", {}).items():
            application = bundle["applications"].setdefault(name, {})
            for key, value in added.items():
                if isinstance(value, dict):
                    application.setdefault(key, {}).update(value)
                else:
                    application[key] = value
    return bundle


def charmcraft(name: str) -> dict[str, Any]:
    return read(ROOT / "charms" / name / "charmcraft.yaml")


def endpoint(text: str) -> tuple[str, str]:
    """The role and the interface of an endpoint such as load-claimer:etcd."""
    application, _, name = text.partition(":")
    if application not in CHARMS:
        return THEIRS[application][name]
    charm = charmcraft(application)
    (found,) = [(role, charm[role][name]) for role in ("provides", "requires") if name in charm.get(role, {})]
    return found[0], found[1]["interface"]


ALONE = [(name,) for name in OVERLAYS]
TOGETHER = [
    ("maas", "etcd"),
    ("openstack", "maas", "etcd"),
    ("lxd", "cos"),
    ("maas", "juju", "cos"),
    ("etcd", "lxd", "cos", "maas"),
]
each_bundle = pytest.mark.parametrize("overlays", [(), *ALONE, *TOGETHER], ids="+".join)


def test_the_bundle_has_the_three_charms_and_no_field_that_only_an_overlay_may_have() -> None:
    bundle = read(BUNDLE)

    assert sorted(bundle["applications"]) == CHARMS
    assert not {"saas", "machines"} & set(bundle)
    assert all(
        not {"offers", "exposed-endpoints"} & set(application)
        for application in bundle["applications"].values()
    )


@each_bundle
def test_both_ends_of_a_relation_are_there_and_speak_the_same_interface(overlays: tuple[str, ...]) -> None:
    bundle = merged(*overlays)

    there = set(bundle["applications"]) | set(bundle.get("saas", {}))
    assert bundle["relations"]
    for one, other in bundle["relations"]:
        assert {one.partition(":")[0], other.partition(":")[0]} <= there
        (one_role, one_interface), (other_role, other_interface) = endpoint(one), endpoint(other)
        assert {one_role, other_role} == {"provides", "requires"}, (one, other)
        assert one_interface == other_interface, (one, other)


@each_bundle
def test_options_of_our_charms_are_in_their_configuration_and_of_its_type(overlays: tuple[str, ...]) -> None:
    types = {"string": str, "int": int, "float": float, "boolean": bool}

    for name, application in merged(*overlays)["applications"].items():
        if name in CHARMS:
            known = charmcraft(name).get("config", {}).get("options", {})
            for option, value in application.get("options", {}).items():
                assert isinstance(value, types[known[option]["type"]]), (name, option)


@each_bundle
def test_applications_say_what_they_run_on(overlays: tuple[str, ...]) -> None:
    bundle = merged(*overlays)

    for name, application in bundle["applications"].items():
        base = application.get("base", bundle["default-base"])
        if name in CHARMS:
            assert base in {platform.partition(":")[0] for platform in charmcraft(name)["platforms"]}
        else:
            assert base in ("ubuntu@22.04", "ubuntu@24.04")
            assert re.fullmatch(r"[\w.]+/stable", application["channel"])
        for constraint in application.get("constraints", "").split():
            assert CONSTRAINTS.fullmatch(constraint), (name, constraint)


@each_bundle
def test_placement_uses_every_machine_and_no_other(overlays: tuple[str, ...]) -> None:
    bundle = merged(*overlays)

    placed = {place for application in bundle["applications"].values() for place in application.get("to", [])}
    assert placed == set(bundle.get("machines", {}))


def test_a_cloud_on_a_maas_loads_it_unless_a_later_overlay_names_another_target() -> None:
    def target(*overlays: str) -> str:
        return merged(*overlays)["applications"]["container-spawner"]["options"]["target"]

    assert target("maas") == target("maas", "etcd") == "maas"
    assert target("maas", "openstack") == "openstack"
    assert target("maas", "lxd", "cos") == "lxd"


def test_an_offer_that_is_consumed_is_related() -> None:
    for name, path in OVERLAYS.items():
        overlay = read(path)
        ends = {end.partition(":")[0] for relation in overlay.get("relations", []) for end in relation}
        assert set(overlay.get("saas", {})) <= ends, name
        for saas in overlay.get("saas", {}).values():
            assert re.fullmatch(r"admin/[a-z-]+\.[a-z-]+", saas["url"])


def test_endpoints_and_options_that_comments_name_are_our_charms_own() -> None:
    """Given commands in the first lines of an overlay, and in the README, then they would be understood."""
    charms = {name: charmcraft(name) for name in CHARMS}
    endpoints = {
        f"{name}:{endpoint}"
        for name, charm in charms.items()
        for role in ("provides", "requires")
        for endpoint in charm.get(role, {})
    }
    named = re.compile(rf"\b((?:{'|'.join(CHARMS)}):[a-z-]+)")
    configured = re.compile(rf"juju config ({'|'.join(CHARMS)})[ #\\\n]+([a-z-]+)=")
    for path in [*OVERLAYS.values(), BUNDLE, ROOT / "bundles" / "README.md"]:
        text = path.read_text()
        assert {*named.findall(text)} <= endpoints, path.name
        for name, option in configured.findall(text):
            assert option in charms[name]["config"]["options"], (path.name, name, option)
    assert configured.findall(OVERLAYS["openstack"].read_text()) == [
        ("container-spawner", "credentials"),
        ("metrics-collector", "static-targets"),
    ]


def test_keys_of_secrets_that_comments_name_are_what_juju_takes() -> None:
    """Given juju add-secret in a comment or a README, then no key is refused (core/secrets/createdata.go)."""
    found = 0
    readmes = [ROOT / "charms" / name / "README.md" for name in CHARMS]
    for path in [*OVERLAYS.values(), *readmes, ROOT / "README.md", ROOT / "docs/how-to/charms.md"]:
        for added in re.findall(r"juju add-secret \S+ ((?:[^\s=]+=\S+[ \\\n]*)+)", path.read_text()):
            for key in re.findall(r"([^\s=]+)=\S+", added):
                assert re.fullmatch(r"[a-z](?:-?[a-z0-9]){2,}(#file|#base64)?", key), (path, key)
                found += 1
    assert found


def test_charms_are_where_scripts_pack_puts_them_on_any_clone() -> None:
    for name, application in read(BUNDLE)["applications"].items():
        assert application["charm"].startswith((".", "/")), "Juju would look for it on Charmhub"
        path = os.path.normpath(BUNDLE.parent / application["charm"])
        assert Path(path).relative_to(ROOT) == Path("dist", f"{name}.charm")


def test_the_readme_names_every_overlay() -> None:
    named = set(re.findall(r"overlays/(\w+)\.yaml", (ROOT / "bundles" / "README.md").read_text()))
    assert named == set(OVERLAYS)
