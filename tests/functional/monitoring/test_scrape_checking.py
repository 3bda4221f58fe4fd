"""What promtool refuses is left out and told, and the rest is a configuration that it takes."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from lab.certificates import make_certificates
from lab.prometheus import find_promtool
from tests.functional.program import WITHIN_S
from tests.unit.monitoring.scrape_bags import BAGS, UNITS
from tippingpoint.errors import OperationFailed
from tippingpoint.monitoring.scrape.check import checked, install
from tippingpoint.monitoring.scrape.jobs import Configuration, Found, Group, Job, Rules, static_targets
from tippingpoint.monitoring.scrape.relation import jobs_of_relation

GOOD = static_targets("good:1")


def accepted(made: Configuration, directory: Path) -> bool:
    """Whether promtool takes it as it is installed."""
    install(directory, made)
    line = [find_promtool(), "check", "config", directory / "prometheus.yml"]
    return subprocess.run(line, capture_output=True, timeout=WITHIN_S, check=False).returncode == 0


def names(made: Configuration) -> list[str]:
    return [job["job_name"] for job in yaml.safe_load(made.files["prometheus.yml"])["scrape_configs"]]


def job(name: str, **differs: Any) -> Found:
    return Found([Job("broken relation", name, [Group([f"{name}:1"])], **differs)])


def test_a_job_that_is_refused_is_left_out_and_told_and_the_others_are_kept(tmp_path: Path) -> None:
    broken = job("broken", relabel=[{"action": "replace", "regex": "("}])

    made = checked([GOOD, job("a"), broken, job("b")], find_promtool())

    assert names(made) == ["targets", "a", "b"]
    (problem,) = made.problems
    assert problem.startswith("broken relation: job broken: left out: ")
    assert "missing closing )" in problem
    assert accepted(made, tmp_path)


def test_a_rule_that_is_refused_is_left_out_and_told_and_the_others_are_kept(tmp_path: Path) -> None:
    good = {"alert": "Good", "expr": "up == 0"}
    groups = [
        {
            "name": "one",
            "rules": [good, {"alert": "Bad", "expr": "up{"}, {"record": "a:b", "expr": "sum(up)"}],
        },
        {"name": "two", "rules": [{"alert": "x", "record": "y", "expr": "1"}]},
    ]
    other = [{"name": "one", "rules": [{"alert": "Other", "expr": "up == 1"}]}]

    made = checked([Found(rules=[Rules("r1", groups)]), Found(rules=[Rules("r2", other)])], find_promtool())

    rules = [
        (group["name"], [rule.get("alert") or rule["record"] for rule in group["rules"]])
        for path, text in made.files.items()
        if path.startswith("rules/")
        for group in yaml.safe_load(text)["groups"]
    ]
    assert sorted(rules) == [("one", ["Good", "a:b"]), ("one", ["Other"])]
    assert [problem.split(": left out: ")[0] for problem in made.problems] == [
        "r1: rule 'Bad'",
        "r1: rule 'x'",
    ]
    assert all("\n" not in problem and str(tmp_path.parent) not in problem for problem in made.problems)
    assert accepted(made, tmp_path)


def test_certificates_that_prometheus_could_not_use_are_told(tmp_path: Path) -> None:
    pair = make_certificates(tmp_path, "x")
    certificate, key, other = (
        path.read_text() for path in (pair.client_cert, pair.client_key, pair.server_key)
    )
    garbage = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"

    made = checked(
        [
            job("fits", scheme="https", ca=pair.ca.read_text(), certificate=certificate, key=key),
            job("no-ca", scheme="https", ca=garbage),
            job("no-cert", scheme="https", certificate=garbage, key=key),
            job("other-key", scheme="https", certificate=certificate, key=other),
        ],
        find_promtool(),
    )

    assert names(made) == ["fits"]
    assert made.problems == [
        "broken relation: job no-ca: expected a certificate (PEM) in tls_config.ca_file",
        "broken relation: job no-cert: expected a certificate (PEM) in tls_config.cert_file",
        "broken relation: job other-key: expected the key of its certificate (PEM, not encrypted) in"
        " tls_config.key_file",
    ]
    assert accepted(made, tmp_path / "configuration")


def test_a_promtool_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"^promtool: .*: No such file or directory$"):
        checked([GOOD], tmp_path / "promtool")


def test_a_hundred_jobs_with_two_broken_ones_are_sorted_out() -> None:
    jobs = [job(f"job{n}", relabel=[{"regex": "("}] if n in (17, 71) else []) for n in range(100)]

    made = checked(jobs, find_promtool())

    assert len(names(made)) == 98
    assert len(made.problems) == 2


@settings(max_examples=15, deadline=None)
@given(BAGS, UNITS)
def test_whatever_the_bags_hold_promtool_takes_what_is_made_of_them(
    tmp_path_factory: pytest.TempPathFactory, bag: dict[str, str], units: dict[str, dict[str, str]]
) -> None:
    made = checked([jobs_of_relation("r", bag, units), GOOD], find_promtool())

    assert "targets" in names(made)
    assert all("\n" not in problem and len(problem) < 800 for problem in made.problems)
    assert accepted(made, tmp_path_factory.mktemp("configuration"))


class TestInstall:
    def test_files_are_for_their_owner_only(self, tmp_path: Path) -> None:
        made = checked([job("a", username="u", password="p-w-d")], find_promtool())

        assert install(tmp_path / "configuration", made)

        files = [path for path in (tmp_path / "configuration").rglob("*") if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert sorted(str(path.relative_to(tmp_path / "configuration")) for path in files) == sorted(
            made.files
        )

    def test_what_is_as_it_was_is_left_alone(self, tmp_path: Path) -> None:
        made = checked([job("a", username="u", password="p-w-d")], find_promtool())

        assert [install(tmp_path, made), install(tmp_path, made)] == [True, False]

    def test_what_is_named_no_more_goes(self, tmp_path: Path) -> None:
        before = Configuration({"prometheus.yml": "a", "files/x.password": "p-w-d", "rules/x.yaml": "r"})
        install(tmp_path, before)
        (tmp_path / "prometheus.yml").chmod(0o644)

        assert install(tmp_path, Configuration({"prometheus.yml": "a"}))

        left = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert left == [tmp_path / "prometheus.yml"]
        assert stat.S_IMODE(left[0].stat().st_mode) == 0o600


def test_a_relation_like_lxds_is_taken_as_it_is(tmp_path: Path) -> None:
    pair = make_certificates(tmp_path, "metrics")
    lxd = {
        "metrics_path": "/1.0/metrics",
        "scheme": "https",
        "tls_config": {
            "ca_file": pair.ca.read_text(),
            "server_name": "lxd",
            "cert_file": pair.client_cert.read_text(),
            "key_file": pair.client_key.read_text(),
        },
        "static_configs": [{"targets": ["10.0.0.1:9100", "10.0.0.2:9100"]}],
    }

    made = checked([jobs_of_relation("lxd", {"scrape_jobs": json.dumps([lxd])}, {})], find_promtool())

    assert made.problems == []
    assert names(made) == ["juju_prometheus_scrape"]
    assert accepted(made, tmp_path / "configuration")
