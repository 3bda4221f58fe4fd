"""The relation prometheus_scrape: what LXD, a Juju controller, our generators and anything else may put into it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.monitoring.scrape_bags import BAGS, CA, METADATA, UNITS
from tippingpoint.monitoring.scrape.jobs import Group, configuration
from tippingpoint.monitoring.scrape.relation import jobs_of_relation

CERT, KEY = (
    f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"
    for label, text in (("CERTIFICATE", "CERT"), ("EC PRIVATE KEY", "KEY"))
)
TOPOLOGY = {
    "juju_model": "m",
    "juju_model_uuid": "12ab",
    "juju_application": "app",
    "juju_charm": "thing",
}


def application(*jobs: Any, rules: Any = None, metadata: Any = METADATA) -> dict[str, str]:
    bag = {"scrape_jobs": json.dumps(list(jobs)), "scrape_metadata": json.dumps(metadata)}
    return bag if rules is None else {**bag, "alert_rules": json.dumps(rules)}


def unit(address: str, name: str = "", path: str = "", **others: str) -> dict[str, str]:
    return {
        "prometheus_scrape_unit_address": address,
        "prometheus_scrape_unit_name": name,
        "prometheus_scrape_unit_path": path,
        **others,
    }


def targets(*targets: str, **labels: str) -> list[dict[str, Any]]:
    return [{"targets": list(targets), "labels": labels}]


class TestWildcards:
    def test_a_star_is_every_unit_with_its_labels_as_cos_has_them(self) -> None:
        job = {"metrics_path": "/metrics", "static_configs": targets("*:9477", tier="x")}

        found = jobs_of_relation(
            "metrics-endpoint:1",
            application(job),
            {"app/0": unit("10.0.0.1", "app/0"), "app/1": unit("fd00::1", "app/1")},
        )

        assert found.problems == []
        (only,) = found.jobs
        assert (only.name, only.path) == ("juju_m_12ab_app_thing_prometheus_scrape", "/metrics")
        assert only.groups == [
            Group([target], {**TOPOLOGY, "juju_unit": name, "instance": f"m_12ab_app_{name}", "tier": "x"})
            for name, target in (("app/0", "10.0.0.1:9477"), ("app/1", "[fd00::1]:9477"))
        ]

    def test_two_targets_of_a_unit_keep_their_addresses_as_their_instances(self) -> None:
        """Their series would be one: the same labels with other values."""
        job = {"static_configs": targets("*:9100", "*:9200")}

        found = jobs_of_relation("r", application(job), {"app/0": unit("10.0.0.1")})

        (group,) = found.jobs[0].groups
        assert group.targets == ["10.0.0.1:9100", "10.0.0.1:9200"]
        assert "instance" not in group.labels

    def test_units_behind_an_ingress_are_scraped_below_their_paths(self) -> None:
        job = {"job_name": "x", "metrics_path": "/m", "static_configs": targets("*")}

        found = jobs_of_relation(
            "r",
            application(job),
            {"app/0": unit("ingress", path="/m-app-0"), "app/1": unit("ingress2", path="/m-app-1/")},
        )

        assert [(only.path, [*only.groups[0].targets]) for only in found.jobs] == [
            ("/m-app-0/m", ["ingress"]),
            ("/m-app-1/m", ["ingress2"]),
        ]

    def test_a_unit_without_an_address_is_waited_for(self) -> None:
        found = jobs_of_relation(
            "r", application({"static_configs": targets("*:1")}), {"app/0": {}, "app/1": unit("10.0.0.1")}
        )

        assert [group.targets for group in found.jobs[0].groups] == [["10.0.0.1:1"]]
        assert found.problems == []

    def test_a_relation_that_says_nothing_yet_is_no_problem(self) -> None:
        assert jobs_of_relation("r", {}, {"app/0": {"ingress-address": "10.0.0.1"}}) == jobs_of_relation(
            "r", {}, {}
        )

    def test_without_jobs_of_its_own_a_job_is_on_port_80(self) -> None:
        found = jobs_of_relation("r", application({}), {"app/0": unit("10.0.0.1")})

        assert (found.jobs[0].path, found.jobs[0].groups[0].targets) == ("/metrics", ["10.0.0.1:80"])


class TestLxd:
    """As the charm of LXD writes it (src/charm.py, 2026): one certificate, and each member's address."""

    UNITS = {f"lxd/{n}": {"ingress-address": f"10.0.0.{n}", "private-address": "x"} for n in (1, 2)}  # noqa: RUF012

    def test_members_of_a_cluster_are_scraped_with_its_certificate_and_ours(self) -> None:
        job = {
            "metrics_path": "/1.0/metrics",
            "scheme": "https",
            "tls_config": {"ca_file": CA, "server_name": "lxd", "cert_file": CERT, "key_file": KEY},
            "static_configs": [{"targets": ["10.0.0.1:9100", "10.0.0.2:9100"]}],
        }

        found = jobs_of_relation("metrics-endpoint:7 lxd", application(job), self.UNITS)

        assert found.problems == []
        (only,) = found.jobs
        assert (only.scheme, only.path, only.server_name) == ("https", "/1.0/metrics", "lxd")
        assert (only.ca, only.certificate, only.key) == (CA, CERT, KEY)
        assert [(group.targets, group.labels["juju_unit"]) for group in only.groups] == [
            (["10.0.0.1:9100"], "lxd/1"),
            (["10.0.0.2:9100"], "lxd/2"),
        ]

    def test_a_server_without_a_certificate_to_verify_it_by_is_told_and_verified_all_the_same(self) -> None:
        job = {
            "scheme": "https",
            "tls_config": {"insecure_skip_verify": True, "cert_file": CERT, "key_file": KEY},
            "static_configs": [{"targets": ["10.0.0.1:9100"]}],
        }

        found = jobs_of_relation("lxd", application(job), self.UNITS)

        (problem,) = found.problems
        assert problem.startswith("lxd: scrape_jobs.0.tls_config.insecure_skip_verify: true: expected a cert")
        assert "insecure_skip_verify" not in configuration([found]).files["prometheus.yml"]
        assert len(found.jobs) == 1


def test_a_juju_controller_is_scraped_with_its_login_and_authority() -> None:
    """As the charm juju-controller writes it (src/charm.py)."""
    job = {
        "metrics_path": "/introspection/metrics",
        "scheme": "https",
        "static_configs": [{"targets": ["*:17070"]}],
        "basic_auth": {"username": "user-juju-metrics-r7", "password": "p-w-d"},
        "tls_config": {"ca_file": CA, "server_name": "juju-apiserver"},
    }

    found = jobs_of_relation("juju", application(job), {"controller/0": unit("10.0.0.9")})

    assert found.problems == []
    (only,) = found.jobs
    assert (only.username, only.password, only.ca) == ("user-juju-metrics-r7", "p-w-d", CA)
    assert only.groups[0].targets == ["10.0.0.9:17070"]
    assert "p-w-d" not in configuration([found]).files["prometheus.yml"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("job", "told"),
        [
            (7, "scrape_jobs.0: expected a valid dictionary"),
            ({"metrics_path": "metrics"}, "scrape_jobs.0.metrics_path: metrics: expected an absolute path"),
            ({"scheme": "ftp"}, "scrape_jobs.0.scheme: ftp: expected http or https"),
            ({"sample_limit": "many"}, "scrape_jobs.0.sample_limit: expected a valid integer"),
            ({"params": {"token": ["x"]}}, "scrape_jobs.0.params: expected no login"),
            ({"basic_auth": {"password": ["p-w-d"]}}, "scrape_jobs.0.basic_auth.password: expected a valid"),
            ({"tls_config": {"ca_file": "/etc/shadow"}}, "scrape_jobs.0.tls_config.ca_file: expected its te"),
            ({"tls_config": {"key_file": KEY}}, "scrape_jobs.0.tls_config: expected cert_file and key_file"),
        ],
    )
    def test_a_job_that_cannot_be_used_is_left_out_and_told_and_the_others_are_kept(
        self, job: Any, told: str
    ) -> None:
        found = jobs_of_relation("r", application(job, {"job_name": "good"}), {"app/0": unit("10.0.0.1")})

        assert [only.name for only in found.jobs] == ["juju_m_12ab_app_thing_prometheus_scrape_good"]
        (problem,) = found.problems
        assert problem.startswith(f"r: {told}")
        assert "p-w-d" not in problem

    def test_a_file_of_ours_that_they_name_is_never_read(self) -> None:
        job = {"basic_auth": {"username": "u", "password_file": "/etc/shadow"}, "bearer_token_file": "/x"}

        found = jobs_of_relation("r", application(job), {"app/0": unit("10.0.0.1")})

        assert "/etc/shadow" not in "".join(configuration([found]).files.values())
        assert "/x" not in configuration([found]).files["prometheus.yml"]

    @pytest.mark.parametrize("target", ["me:p-w-d@host:1", "host/path:1", "", "*:x", "host:1 host:2"])
    def test_a_target_that_is_none_is_told_and_the_others_are_kept(self, target: str) -> None:
        found = jobs_of_relation("r", application({"static_configs": targets(target, "good:1")}), {})

        assert [group.targets for group in found.jobs[0].groups] == [["good:1"]]
        (problem,) = found.problems
        assert problem.startswith("r: scrape_jobs.0.static_configs.0.targets:")
        assert "p-w-d" not in problem

    @pytest.mark.parametrize("key", ["scrape_jobs", "scrape_metadata", "alert_rules"])
    @pytest.mark.parametrize("text", ["{", "7", '"x"', "[" * 10_000, '{"a": "\\ud800"}'])
    def test_what_is_no_json_of_that_kind_is_told(self, key: str, text: str) -> None:
        found = jobs_of_relation("r", {key: text}, {})

        (problem,) = found.problems
        assert problem.startswith(f"r: {key}: expected a ")

    def test_more_targets_than_are_scraped_are_told(self) -> None:
        many = [f"host{number}:1" for number in range(1001)]

        found = jobs_of_relation("r", application({"static_configs": targets(*many)}), {})

        assert found.jobs == []
        assert found.problems == ["r: scrape_jobs.0.static_configs: 1001 targets: expected at most 1000"]

    @pytest.mark.parametrize(
        ("asked", "interval"), [("1s", None), ("15s", None), ("1m", 60), ("1h", 120), ("soon", None)]
    )
    def test_a_job_may_be_slower_and_no_job_is_faster(self, asked: str, interval: int | None) -> None:
        found = jobs_of_relation(
            "r", application({"scrape_interval": asked, "static_configs": targets("a:1")}), {}
        )

        assert found.jobs[0].interval == interval
        assert len(found.problems) == (asked == "soon")


class TestRules:
    def test_rules_are_kept_with_the_topology_where_the_library_leaves_room_for_it(self) -> None:
        rule = {
            "alert": "Down",
            "expr": "up{%%juju_topology%%} < 1 or x{a='b',%%juju_topology%%}",
            "for": "5m",
            "labels": {"severity": "critical"},
            "annotations": {"summary": "{{ $labels.juju_unit }}"},
        }
        rules = {"groups": [{"name": "g", "rules": [rule]}, {"name": "g", "rules": [rule]}]}

        (kept,) = jobs_of_relation("r", application(rules=rules), {}).rules

        matchers = 'juju_model="m", juju_model_uuid="12ab", juju_application="app",'
        first, second = kept.groups
        assert (first["name"], second["name"]) == ("g", "g_")
        assert first["rules"] == [
            {**rule, "expr": f"up{{{matchers}}} < 1 or x{{a='b',{matchers}}}"},
        ]

    def test_a_rule_that_is_none_is_told_and_the_others_are_kept(self) -> None:
        good = {"record": "a:b", "expr": 1}
        rules = {"groups": [7, {"name": "g", "rules": [good, {"alert": "x"}, "y"]}, {"rules": []}]}

        found = jobs_of_relation("r", application(rules=rules), {})

        assert [group["rules"] for group in found.rules[0].groups] == [[{"record": "a:b", "expr": "1"}]]
        assert [problem.split(": expected")[0] for problem in found.problems] == [
            "r: alert_rules.groups.0",
            "r: alert_rules.groups.1.rules.1.expr",
            "r: alert_rules.groups.1.rules.2",
        ]


@settings(max_examples=100, deadline=None)
@given(BAGS, UNITS)
def test_whatever_the_bags_hold_it_becomes_jobs_or_lines(
    bag: dict[str, str], units: dict[str, dict[str, str]]
) -> None:
    found = jobs_of_relation("r", bag, units)

    assert all(
        problem.startswith("r: ") and problem.isprintable() and len(problem) < 600
        for problem in found.problems
    )
    made = configuration([found])
    for text in made.files.values():
        text.encode()
