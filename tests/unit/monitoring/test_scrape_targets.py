"""What an operator lists to be scraped, and the configuration that is made of jobs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.monitoring.scrape.jobs import (
    LARGEST_SCRAPE,
    MOST_SAMPLES,
    Found,
    Group,
    Job,
    Rules,
    ScrapeAccess,
    configuration,
    exporters,
    itself,
    static_targets,
)


def scrape_configs(*found: Found, interval: int = 15) -> list[dict[str, Any]]:
    return yaml.safe_load(configuration(found, interval).files["prometheus.yml"])["scrape_configs"]


class TestStaticTargets:
    def test_targets_are_separated_by_commas_or_lines_and_have_a_scheme_a_path_and_labels(self) -> None:
        found = static_targets(
            "10.0.0.1:9100 host=a role=db, 10.0.0.2:9100\nhttps://lxd.example:8444/1.0/metrics\n\n,"
        )

        assert found.problems == []
        assert [(job.scheme, job.path, job.groups) for job in found.jobs] == [
            (
                "http",
                "/metrics",
                [
                    Group(["10.0.0.1:9100"], {"host": "a", "role": "db"}),
                    Group(["10.0.0.2:9100"], {}),
                ],
            ),
            ("https", "/1.0/metrics", [Group(["lxd.example:8444"], {})]),
        ]

    def test_those_by_https_are_verified_by_the_authority_that_is_given(self) -> None:
        found = static_targets("https://a:1, b:2", ScrapeAccess(ca="PEM"))

        assert [(job.scheme, job.ca) for job in found.jobs] == [("https", "PEM"), ("http", "")]

    def test_a_login_and_a_certificate_go_to_those_by_https_alone_and_into_files(self) -> None:
        access = ScrapeAccess("CA", certificate="CERT", key="KEY", username="etcd", password="pass-word")

        found = static_targets("https://a:2379, b:2381", access)
        made = configuration([found])

        assert found.problems == []
        configs = scrape_configs(found)
        assert [config["job_name"] for config in configs if "tls_config" in config] == ["targets"]
        assert [config["job_name"] for config in configs if "basic_auth" in config] == ["targets"]
        for secret in ("KEY", "pass-word"):
            assert [path.partition("/")[0] for path, text in made.files.items() if secret in text] == [
                "files"
            ]

    def test_one_that_no_target_is_for_is_told(self) -> None:
        found = static_targets("a:2379", ScrapeAccess(token="to-ken"))

        assert found.problems == [
            "targets: certificates and login: expected https:// before the targets they are for"
        ]
        assert static_targets("a:2379", ScrapeAccess()).problems == []

    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("host", "host"),
            ("host.example.:1", None),
            ("[fd00::1]:9100", "[fd00::1]:9100"),
            ("[fd00::1]", "[fd00::1]"),
            ("fd00::1:9100", "[fd00::1]:9100"),
            ("host:0", None),
            ("host:65536", None),
            ("host:", None),
            ("-host:1", None),
            ("me:p-w-d@host:1", None),
            ("ftp://host", None),
            ("http://host/a?b=c", None),
            ("[::1", None),
        ],
    )
    def test_what_is_no_target_is_told_and_the_others_are_kept(self, text: str, address: str | None) -> None:
        found = static_targets(f"good:1, {text}")

        targets = [target for job in found.jobs for group in job.groups for target in group.targets]
        assert targets == ["good:1", *([address] if address else [])]
        assert [problem.startswith("targets: target: ") for problem in found.problems] == (
            [] if address else [True]
        )
        assert "p-w-d" not in "".join(found.problems)

    @pytest.mark.parametrize("labels", ["a", "a-b=c", "__address__=x", "=x"])
    def test_labels_that_are_none_are_told(self, labels: str) -> None:
        found = static_targets(f"host:1 {labels}")

        assert found.jobs == []
        assert found.problems == [
            f"targets: labels: {labels}: expected NAME=VALUE for host:1, and a comma before another target"
        ]

    def test_more_targets_than_are_scraped_are_told(self) -> None:
        found = static_targets(",".join(f"host{number}" for number in range(1001)))

        assert found.problems == ["targets: number: 1001: expected at most 1000"]
        assert sum(len(job.groups) for job in found.jobs) == 1000

    @given(st.text() | st.text(alphabet="ab:/[],=@ \n_%1.?#"))
    def test_whatever_it_is_each_entry_is_scraped_or_told(self, text: str) -> None:
        found = static_targets(text)

        scraped = sum(len(job.groups) for job in found.jobs)
        entries = [part for part in text.replace("\n", ",").replace("\r", ",").split(",") if part.strip()]
        assert scraped + len(found.problems) == len(entries)
        assert all("\n" not in problem for problem in found.problems)
        scrape_configs(found)


def test_exporters_of_generators_are_scraped_with_the_labels_of_their_units() -> None:
    found = exporters("scale-run:3", {"load-claimer/0": "10.0.0.7:9477", "load-claimer/1": "nowhere:x"})

    (job,) = found.jobs
    labels = {"juju_application": "load-claimer", "juju_unit": "load-claimer/0", "instance": "load-claimer/0"}
    assert job.groups == [Group(["10.0.0.7:9477"], labels)]
    assert found.problems == ["scale-run:3: load-claimer/1: nowhere:x: expected HOST:PORT of its exporter"]


class TestConfiguration:
    def test_every_job_is_limited_in_bytes_samples_and_labels(self) -> None:
        (config,) = scrape_configs(static_targets("host:1"))

        assert config["body_size_limit"] == f"{LARGEST_SCRAPE >> 20}MB"
        assert config["sample_limit"] == MOST_SAMPLES
        assert config["label_limit"] > 0
        assert config["label_value_length_limit"] > 0

    def test_times_are_of_one_clock_and_no_login_follows_a_redirect(self) -> None:
        (config,) = scrape_configs(static_targets("host:1"))

        assert config["honor_timestamps"] is False
        assert config["follow_redirects"] is False

    def test_secrets_are_in_files_that_prometheus_yml_names(self) -> None:
        job = Job(
            "relation",
            "juju",
            [Group(["c:17070"])],
            "https",
            ca="CA",
            certificate="CERT",
            key="KEY",
            username="user-x",
            password="p-w-d",
            server_name="juju-apiserver",
        )
        other = Job("relation", "other", [Group(["d:1"])], "https", token="t-k-n")

        made = configuration([Found([job, other])])

        text = made.files["prometheus.yml"]
        assert not any(secret in text for secret in ("p-w-d", "t-k-n", "KEY", "CERT"))
        first, second = yaml.safe_load(text)["scrape_configs"]
        assert made.files[first["tls_config"]["ca_file"]] == "CA"
        assert made.files[first["tls_config"]["cert_file"]] == "CERT"
        assert made.files[first["tls_config"]["key_file"]] == "KEY"
        assert first["tls_config"]["server_name"] == "juju-apiserver"
        assert first["basic_auth"]["username"] == "user-x"
        assert made.files[first["basic_auth"]["password_file"]] == "p-w-d"
        assert made.files[second["authorization"]["credentials_file"]] == "t-k-n"
        assert "p-w-d" not in repr(job)

    def test_jobs_of_the_same_name_become_jobs_of_their_own_with_files_of_their_own(self) -> None:
        jobs = [
            Job(owner, "juju", [Group([f"{owner}:1"])], username="u", password=owner) for owner in ("a", "b")
        ]

        made = configuration([Found([jobs[0]]), Found([jobs[1]])])

        configs = yaml.safe_load(made.files["prometheus.yml"])["scrape_configs"]
        assert [config["job_name"] for config in configs] == ["juju", "juju_2"]
        passwords = [made.files[config["basic_auth"]["password_file"]] for config in configs]
        assert passwords == ["a", "b"]

    def test_a_job_that_takes_over_the_name_of_another_owners_has_other_files(self) -> None:
        """Until it reloads, Prometheus would send the one's password to the other."""
        both = [
            Found([Job(owner, "juju", [Group(["x:1"])], username="u", password=owner)])
            for owner in ("a", "b")
        ]

        with_both, without_first = configuration(both).files, configuration(both[1:]).files

        of_a = next(path for path, text in with_both.items() if text == "a")
        assert of_a not in without_first

    def test_an_interval_below_the_timeout_shortens_it(self) -> None:
        job = Job("x", "slow", [Group(["x:1"])], interval=60, timeout=90)
        text = configuration([Found([job])], 2).files["prometheus.yml"]

        whole = yaml.safe_load(text)
        assert whole["global"]["scrape_timeout"] == "2s"
        (config,) = whole["scrape_configs"]
        assert (config["scrape_interval"], config["scrape_timeout"]) == ("60s", "60s")

    def test_rules_are_in_files_of_their_own(self) -> None:
        groups = [{"name": "g", "rules": [{"alert": "A", "expr": "up == 0"}]}]
        made = configuration([Found(rules=[Rules("a", groups), Rules("b", groups), Rules("c", [])])])

        paths = yaml.safe_load(made.files["prometheus.yml"])["rule_files"]
        assert [yaml.safe_load(made.files[path])["groups"] for path in paths] == [groups, groups]

    def test_prometheus_scrapes_itself(self) -> None:
        plain, over_tls = scrape_configs(itself("127.0.0.1:9481"), itself("10.0.0.1:9481", ca="CA"))

        assert plain["static_configs"] == [{"targets": ["127.0.0.1:9481"]}]
        assert (plain["scheme"], over_tls["scheme"]) == ("http", "https")
