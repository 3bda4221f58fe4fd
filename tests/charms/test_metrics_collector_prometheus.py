"""The Prometheus of the metrics-collector charm: what is related and configured becomes what it scrapes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from lab.lxd.access import make_client_certificate
from tests.charms.collector import bag_of_unit, charm, context, on_machine, state_of
from tests.charms.generators import Directory
from tests.charms.systemd import exposure, misunderstood, needs_systemd
from tests.examples import examples

PASSWORD = "correct horse battery staple"
"""It must show nowhere but in a file of mode 0600."""
SERVICE = "tippingpoint-metrics-collector-0-prometheus"
FUZZED = examples(25)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    """A machine with the distribution's Prometheus."""
    for program in stand_ins(tmp_path):
        monkeypatch.setenv(f"TIPPINGPOINT_{program.name.upper()}", str(program))
    return on_machine(monkeypatch, tmp_path)


def stand_ins(directory: Path) -> list[Path]:
    """A prometheus, which these tests never start, and a promtool that takes whatever it is asked about. What the real
    one takes is asked in tests/functional/monitoring."""
    directory.mkdir(exist_ok=True)
    programs = [directory / "prometheus", directory / "promtool"]
    for program in programs:
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return programs


def controller(application: str = "controller", **job: Any) -> testing.Relation:
    """A Juju controller that is related, as its charm writes it: a login in the job."""
    jobs = [
        {
            "job_name": "juju",
            "metrics_path": "/introspection/metrics",
            "scheme": "http",
            "static_configs": [{"targets": ["*:17070"]}],
            "basic_auth": {"username": "user-prometheus", "password": PASSWORD},
            **job,
        }
    ]
    where = {
        "model": "controller",
        "model_uuid": "0" * 8,
        "application": application,
        "charm_name": "juju-controller",
    }
    return testing.Relation(
        "metrics",
        remote_app_name=application,
        remote_app_data={"scrape_jobs": json.dumps(jobs), "scrape_metadata": json.dumps(where)},
        remote_units_data={
            0: {
                "prometheus_scrape_unit_address": "192.0.2.9",
                "prometheus_scrape_unit_name": f"{application}/0",
            }
        },
    )


def after(event: Any, *relations: testing.RelationBase, **state: Any) -> testing.State:
    ctx = context()
    event = getattr(ctx.on, event)() if isinstance(event, str) else event
    return ctx.run(event, testing.State(relations=relations, **state))


def changed(relation: testing.Relation, *others: testing.Relation, **state: Any) -> testing.State:
    return after(context().on.relation_changed(relation), relation, *others, **state)


def configuration(machine: Directory) -> dict[str, Any]:
    """What Prometheus is given."""
    return yaml.safe_load((state_of(machine) / "prometheus/prometheus.yml").read_text())


def targets(machine: Directory) -> list[str]:
    """All that it is to scrape."""
    jobs = configuration(machine)["scrape_configs"]
    return sorted(target for job in jobs for group in job["static_configs"] for target in group["targets"])


def unit_file(machine: Directory) -> Path:
    return machine.path(f"/etc/systemd/system/{SERVICE}.service")


def status(*relations: testing.RelationBase, **state: Any) -> dict[str, Any]:
    """The results of the action."""
    ctx = context()
    ctx.run(ctx.on.action("status"), testing.State(relations=relations, **state))
    assert ctx.action_results is not None
    return ctx.action_results


def test_without_anything_to_scrape_there_is_none(machine: Directory) -> None:
    out = after("install")

    assert not unit_file(machine).exists()
    assert isinstance(out.unit_status, testing.WaitingStatus)
    assert status()["prometheus"].startswith("none: relate metrics, receive-remote-write or ")


@pytest.fixture
def bare(machine: Directory, monkeypatch: pytest.MonkeyPatch) -> Directory:
    """A machine without Prometheus."""
    monkeypatch.delenv("TIPPINGPOINT_PROMETHEUS")
    monkeypatch.delenv("TIPPINGPOINT_PROMTOOL")
    monkeypatch.setenv("PATH", "/nowhere")
    return machine


def test_where_it_is_missing_it_is_installed_and_its_own_service_does_not_run(
    bare: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = bare.path("/usr/bin")
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(programs))

    def unpack() -> None:
        for program in stand_ins(bare.path("/opt")):
            (programs / program.name).symlink_to(program)

    bare.does["install --no-install-recommends prometheus"] = unpack

    out = changed(controller())

    assert unit_file(bare).exists()
    assert isinstance(out.unit_status, testing.WaitingStatus)
    own = [command for command in bare.commands if "prometheus" in command and SERVICE not in command]
    assert own[0] == "systemctl mask prometheus.service"
    assert own[1].startswith("apt-get ")
    assert own[2:4] == ["systemctl unmask prometheus.service", "systemctl disable prometheus.service"]


def test_where_it_cannot_be_installed_the_status_says_why_and_how(bare: Directory) -> None:
    bare.refuses = "apt-get"

    out = changed(controller())

    assert out.unit_status == testing.BlockedStatus(
        "Prometheus is not installed (apt-get: refused): "
        "juju exec --unit metrics-collector/0 -- apt install -y prometheus"
    )
    assert not unit_file(bare).exists()
    assert bare.commands[-1] == "systemctl unmask prometheus.service"


def test_what_is_related_and_configured_is_scraped(machine: Directory) -> None:
    out = changed(controller(), config={"static-targets": "192.0.2.7:9100 host=m1"})

    assert targets(machine) == ["127.0.0.1:9481", "192.0.2.7:9100", "192.0.2.9:17070"]
    assert isinstance(out.unit_status, testing.WaitingStatus)
    assert machine.commands[-2:] == [
        f"systemctl enable {SERVICE}.service",
        f"systemctl restart {SERVICE}.service",
    ]
    assert "127.0.0.1:9481" in status()["prometheus"]
    assert "--web.listen-address=127.0.0.1:9481" in unit_file(machine).read_text()


def test_what_is_secret_is_in_files_of_its_own_that_only_prometheus_can_read(machine: Directory) -> None:
    out = changed(controller())

    place = state_of(machine) / "prometheus"
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert [path.parent.name for path in files if PASSWORD in path.read_text()] == ["files"]
    told = [
        unit_file(machine).read_text(),
        str(out.unit_status),
        *machine.commands,
        *map(str, status().values()),
    ]
    assert not any(PASSWORD in text for text in told)


def test_a_change_is_a_reload_and_no_change_is_nothing(machine: Directory) -> None:
    relation = controller()
    changed(relation)
    machine.commands.clear()

    changed(relation)
    assert machine.commands == []
    changed(relation, config={"static-targets": "192.0.2.7"})
    assert machine.commands == [f"systemctl reload-or-restart {SERVICE}.service"]


def test_a_broken_relation_is_named_and_the_others_are_scraped(machine: Directory) -> None:
    bad = controller("broken", static_configs=[{"targets": ["*:not-a-port"]}])

    out = changed(bad, controller())

    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert out.unit_status.message.startswith(f"metrics:{bad.id} broken: ")
    assert "192.0.2.9:17070" in targets(machine)
    assert f"metrics:{bad.id} broken: " in status(bad, stored_states=out.stored_states)["problems"]


def test_of_several_problems_the_status_counts_those_that_it_does_not_name(machine: Directory) -> None:
    out = after("config_changed", config={"static-targets": "a:b:c, d e"})

    assert "(and 1 more: juju run metrics-collector/0 status)" in out.unit_status.message


def test_a_relation_that_ends_is_scraped_no_more(machine: Directory) -> None:
    first, second = controller(), controller("other")
    changed(first, second)

    after(context().on.relation_broken(first), first, second)
    jobs = [job["job_name"] for job in configuration(machine)["scrape_configs"]]
    after(context().on.relation_broken(second), second)

    assert len(jobs) == 2
    assert f"systemctl disable --now {SERVICE}.service" in machine.commands
    assert not (state_of(machine) / "prometheus").exists()


def test_generators_are_scraped_as_soon_as_one_says_where(machine: Directory) -> None:
    bag = {**bag_of_unit("load-claimer/0"), "exporter": "192.0.2.20:9477"}
    generator = testing.Relation("scale-run", remote_app_name="load-claimer", remote_units_data={0: bag})
    config = {"static-targets": "192.0.2.7:9100"}
    ctx = context()
    out = ctx.run(ctx.on.config_changed(), testing.State(config=config))
    assert "192.0.2.20:9477" not in targets(machine)

    ctx.run(
        ctx.on.relation_changed(generator, remote_unit=0),
        testing.State(config=config, relations=[generator], stored_states=out.stored_states),
    )

    (job,) = [job for job in configuration(machine)["scrape_configs"] if "192.0.2.20:9477" in str(job)]
    assert job["static_configs"][0]["labels"]["juju_unit"] == "load-claimer/0"


def test_those_that_send_samples_are_told_where(machine: Directory) -> None:
    sender = testing.Relation("receive-remote-write", remote_app_name="agent")

    out = after(context().on.relation_created(sender), sender)

    bag = out.get_relation(sender.id).local_unit_data
    assert json.loads(bag["remote_write"]) == {"url": "http://192.0.2.0:9481/api/v1/write"}
    assert out.opened_ports == {testing.TCPPort(9481)}
    text = unit_file(machine).read_text()
    assert "--web.listen-address=0.0.0.0:9481" in text
    assert "--web.enable-remote-write-receiver" in text


def test_without_prometheus_nobody_is_told_to_send(
    machine: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIPPINGPOINT_PROMETHEUS")
    monkeypatch.setenv("PATH", "/nowhere")
    sender = testing.Relation("receive-remote-write", remote_app_name="agent")

    out = after(context().on.relation_created(sender), sender)

    assert "remote_write" not in out.get_relation(sender.id).local_unit_data
    assert out.opened_ports == frozenset()


def test_one_that_does_not_answer_is_started_and_told(machine: Directory) -> None:
    relation = controller()
    changed(relation)
    machine.commands.clear()

    out = after("update_status", relation)

    assert f"systemctl start {SERVICE}.service" in machine.commands
    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert "http://127.0.0.1:9481: Prometheus does not answer" in out.unit_status.message


@pytest.mark.parametrize("exporter", ["", "x y", "192.0.2.1:99999999", "http://192.0.2.1:9477", "a" * 5000])
def test_a_generator_that_says_nonsense_takes_nothing_down(machine: Directory, exporter: str) -> None:
    bag = {**bag_of_unit("load-claimer/0"), "exporter": exporter}
    generator = testing.Relation("scale-run", remote_app_name="load-claimer", remote_units_data={0: bag})

    changed(controller(), generator)

    assert targets(machine) == ["127.0.0.1:9481", "192.0.2.9:17070"]


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("retention", "forever", "retention: forever: expected a number of hours, days, weeks or years"),
        ("retention", "15d --web.enable-admin-api", "retention: 15d --web.enable-admin-api: expected "),
        ("scrape-interval", 1, "scrape-interval: 1: expected "),
        ("prometheus-url", "prometheus:9090", "prometheus-url: prometheus:9090: expected http(s)://HOST"),
        ("prometheus-only", "lxd", "prometheus-only: lxd: expected LABEL=VALUE, or with != =~ !~"),
        ("static-targets", "http://", "targets: target: http://: expected [http[s]://]HOST[:PORT][/PATH]"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    machine: Directory, option: str, value: str | int, line: str
) -> None:
    out = after("config_changed", config={"static-targets": "192.0.2.7", option: value})

    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert out.unit_status.message.startswith(line)


def test_a_login_in_the_url_is_refused_and_not_shown(machine: Directory) -> None:
    out = after("config_changed", config={"prometheus-url": "https://user:pass-word@prometheus"})

    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert out.unit_status.message.startswith("prometheus-url: ")
    assert "pass-word" not in out.unit_status.message
    assert "pass-word" not in str(status(config={"prometheus-url": "https://user:pass-word@prometheus"}))


class TestElsewhere:
    def test_an_existing_one_is_used_instead(self, machine: Directory) -> None:
        changed(controller())

        out = after("config_changed", config={"prometheus-url": "https://prometheus.example"})

        assert not unit_file(machine).exists()
        assert isinstance(out.unit_status, testing.WaitingStatus)
        assert status(config={"prometheus-url": "https://prometheus.example"})["prometheus"] == (
            "https://prometheus.example"
        )

    def test_of_one_elsewhere_what_is_related_is_the_targets(self, machine: Directory) -> None:
        config = {"prometheus-url": "https://prometheus.example"}

        out = changed(controller(), controller("other"), config=config)

        assert not unit_file(machine).exists()
        assert isinstance(out.unit_status, testing.WaitingStatus)
        assert status(controller(), controller("other"), config=config)["prometheus"] == (
            'https://prometheus.example, for what has juju_model_uuid=~"00000000",juju_application=~"controller|other"'
        )

    def test_labels_say_what_is_the_targets_whatever_is_related(self, machine: Directory) -> None:
        config = {"prometheus-url": "https://prometheus.example", "prometheus-only": "rack=7, job!=x"}

        assert status(controller(), config=config)["prometheus"] == (
            'https://prometheus.example, for what has rack="7",job!="x"'
        )

    @pytest.mark.parametrize(
        "more",
        [
            {"config": {"prometheus-url": "https://prometheus.example", "static-targets": "192.0.2.7"}},
            {"relations": [testing.Relation("receive-remote-write", remote_app_name="agent")]},
        ],
    )
    def test_one_elsewhere_and_something_to_scrape_is_a_contradiction(
        self, machine: Directory, more: dict[str, Any]
    ) -> None:
        config = {"prometheus-url": "https://prometheus.example", **more.get("config", {})}

        out = after("config_changed", *more.get("relations", []), config=config)

        assert out.unit_status == testing.BlockedStatus(
            "prometheus-url: https://prometheus.example: expected none while receive-remote-write or "
            "static-targets ask for a Prometheus of our own"
        )

    def test_its_secret_is_checked(self, machine: Directory) -> None:
        secret = testing.Secret({"user": "x"}, owner=None)
        config = {"prometheus-url": "https://prometheus.example", "prometheus-credentials": secret.id}

        out = after("config_changed", config=config, secrets=[secret])

        assert out.unit_status.message.startswith(
            "prometheus-credentials: expected a secret with username, password (and cacert); "
            "or token (and cacert); or cacert"
        )


class TestRelated:
    """A Prometheus of COS by the relation prometheus-api."""

    @staticmethod
    def cos(**bag: str) -> testing.Relation:
        return testing.Relation("prometheus-api", remote_app_name="prometheus", remote_app_data=bag)

    @pytest.mark.parametrize(
        ("bag", "url"),
        [
            (
                {"direct_url": "http://prometheus.cos.svc.cluster.local:9090/"},
                "http://prometheus.cos.svc.cluster.local:9090",
            ),
            (
                {
                    "direct_url": "http://prometheus.cos.svc.cluster.local:9090/",
                    "ingress_url": "https://192.0.2.80/cos-prometheus-0",
                },
                "https://192.0.2.80/cos-prometheus-0",
            ),
        ],
    )
    def test_it_is_asked_where_it_says(self, machine: Directory, bag: dict[str, str], url: str) -> None:
        changed(controller())
        relation = self.cos(**bag)

        out = changed(relation)

        assert not unit_file(machine).exists()
        assert isinstance(out.unit_status, testing.WaitingStatus)
        assert status(relation)["prometheus"] == url

    def test_what_is_related_to_both_is_the_targets(self, machine: Directory) -> None:
        relation = self.cos(direct_url="http://prometheus:9090")

        changed(relation, controller())

        assert not unit_file(machine).exists()
        assert status(relation, controller())["prometheus"].endswith('juju_application=~"controller"')

    def test_an_option_goes_before_it(self, machine: Directory) -> None:
        config = {"prometheus-url": "https://prometheus.example"}

        assert status(self.cos(direct_url="http://other"), config=config)["prometheus"] == (
            "https://prometheus.example"
        )

    def test_one_that_has_said_nothing_yet_is_told(self, machine: Directory) -> None:
        out = changed(self.cos())

        assert (
            out.unit_status.message
            == "prometheus-api: prometheus has not published the URL of its Prometheus yet"
        )

    @pytest.mark.parametrize(
        "url", ["gopher://x", "http://", "http://u:pass-word@x", "http://[", "a b", "x" * 9000]
    )
    def test_one_that_says_nonsense_is_told(self, machine: Directory, url: str) -> None:
        out = changed(self.cos(ingress_url=url))

        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.startswith("prometheus-api: prometheus: ")
        assert len(out.unit_status.message) < 300
        assert "pass-word" not in out.unit_status.message
        assert "pass-word" not in str(status(self.cos(ingress_url=url)))

    def test_when_it_is_gone_what_is_related_is_scraped_here(self, machine: Directory) -> None:
        relation = self.cos(direct_url="http://prometheus:9090")
        changed(relation, controller())

        after(context().on.relation_broken(relation), relation, controller())

        assert "192.0.2.9:17070" in targets(machine)


class TestTargetsWithTls:
    """static-targets that ask for a certificate or a login, as etcd does."""

    CONFIG: ClassVar = {"static-targets": "https://192.0.2.7:2379, 192.0.2.8:9100"}

    @staticmethod
    def secret(**content: str) -> testing.Secret:
        return testing.Secret({name.replace("_", "-"): text for name, text in content.items()}, owner=None)

    def after(self, secret: testing.Secret, **config: str) -> testing.State:
        config = {**self.CONFIG, "static-targets-credentials": secret.id, **config}
        return after("config_changed", config=config, secrets=[secret])

    def test_they_are_verified_and_know_us_by_our_certificate(self, machine: Directory) -> None:
        ours, theirs = make_client_certificate(), make_client_certificate()

        out = self.after(
            self.secret(certificate=ours.certificate, private_key=ours.key),
            **{"static-targets-ca": theirs.certificate},
        )

        jobs = {
            job["static_configs"][0]["targets"][0]: job for job in configuration(machine)["scrape_configs"]
        }
        place, tls = state_of(machine) / "prometheus", jobs["192.0.2.7:2379"]["tls_config"]
        assert {
            name: (place / tls[name]).read_text().strip() for name in ("ca_file", "cert_file", "key_file")
        } == {
            "ca_file": theirs.certificate.strip(),
            "cert_file": ours.certificate.strip(),
            "key_file": ours.key.strip(),
        }
        assert stat.S_IMODE((place / tls["key_file"]).stat().st_mode) == 0o600
        assert "tls_config" not in jobs["192.0.2.8:9100"]
        assert isinstance(out.unit_status, testing.WaitingStatus)

    @pytest.mark.parametrize("login", [{"username": "u", "password": PASSWORD}, {"token": PASSWORD}])
    def test_a_login_is_in_a_file_of_its_own(self, machine: Directory, login: dict[str, str]) -> None:
        out = self.after(self.secret(**login))

        place = state_of(machine) / "prometheus"
        shown = [path for path in place.rglob("*") if path.is_file() and PASSWORD in path.read_text()]
        assert [path.parent.name for path in shown] == ["files"]
        assert PASSWORD not in unit_file(machine).read_text() + str(out.unit_status) + "".join(
            machine.commands
        )

    @pytest.mark.parametrize(
        "content",
        [{"certificate": "x"}, {"username": "u"}, {"token": "t", "password": PASSWORD}, {"key": "x"}],
    )
    def test_a_secret_that_is_none_is_told_and_the_rest_is_scraped(
        self, machine: Directory, content: dict[str, str]
    ) -> None:
        out = self.after(self.secret(**content))

        assert out.unit_status.message.startswith(
            "static-targets-credentials: expected a secret with username,"
        )
        assert "192.0.2.8:9100" in targets(machine)

    def test_a_key_that_is_not_the_certificates_is_told(self, machine: Directory) -> None:
        ours, others = make_client_certificate(), make_client_certificate()

        out = self.after(self.secret(certificate=ours.certificate, private_key=others.key))

        assert "expected the key of its certificate" in out.unit_status.message
        assert targets(machine) == ["127.0.0.1:9481", "192.0.2.8:9100"]

    def test_an_authority_that_is_none_is_told(self, machine: Directory) -> None:
        out = after("config_changed", config={**self.CONFIG, "static-targets-ca": "/etc/ssl/ca.pem"})

        assert out.unit_status.message == (
            "static-targets-ca: /etc/ssl/ca.pem: expected the text of certificates (PEM): static-targets-ca=@FILE"
        )


class TestUnitFile:
    def test_it_runs_as_a_user_of_its_own(self, machine: Directory) -> None:
        changed(controller())

        assert any(
            line.startswith("useradd ") and line.endswith(" tippingpoint-prometheus")
            for line in machine.commands
        )
        assert "User=tippingpoint-prometheus\n" in unit_file(machine).read_text()

    def test_nothing_of_it_is_left_when_the_charm_goes(self, machine: Directory) -> None:
        changed(controller())

        after("remove")

        assert not unit_file(machine).exists()
        assert not state_of(machine).exists()
        assert "userdel tippingpoint-prometheus" in machine.commands

    @needs_systemd
    def test_systemd_understands_it_and_rates_its_exposure_under_3(
        self, machine: Directory, tmp_path: Path
    ) -> None:
        changed(controller())
        text = unit_file(machine).read_text()
        assert misunderstood({f"{SERVICE}.service": text}, tmp_path / "verified") == []
        assert exposure(unit_file(machine)) < 3


anything = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60),
    st.sampled_from(
        [
            "[]", "{}", "null", "[" * 5000, '[{"static_configs": [{"targets": ["*:1", 2, ""]}]}]',
            '[{"job_name": "x", "relabel_configs": [{"action": "drop", "regex": "("}]}]',
            '{"groups": [{"name": "x", "rules": [{"alert": "A", "expr": "up =="}]}]}',
            json.dumps([{"basic_auth": {"username": "u", "password": PASSWORD}, "scheme": "gopher"}]),
            json.dumps([{"tls_config": {"ca": "x"}, "static_configs": [{"targets": ["*"]}]}]),
        ]
    ),
)  # fmt: skip
bags = st.dictionaries(
    st.sampled_from(
        [
            "scrape_jobs", "scrape_metadata", "alert_rules", "prometheus_scrape_unit_address",
            "prometheus_scrape_unit_name", "prometheus_scrape_unit_path", "remote_write", "more",
        ]
    ),
    anything,
)  # fmt: skip


def test_a_job_in_the_place_of_an_address_does_not_show_its_login(machine: Directory) -> None:
    job = json.dumps([{"basic_auth": {"username": "u", "password": PASSWORD}, "scheme": "gopher"}])
    bad = testing.Relation(
        "metrics", remote_app_name="bad", remote_units_data={0: {"prometheus_scrape_unit_address": job}}
    )

    out = changed(bad)

    assert PASSWORD not in out.unit_status.message
    assert (
        "bad/0: prometheus_scrape_unit_address: (not shown): expected an address" in out.unit_status.message
    )


@FUZZED
@given(app=bags, unit=bags)
def test_whatever_others_write_is_a_line_and_the_rest_is_scraped(
    machine: Directory, app: dict[str, str], unit: dict[str, str]
) -> None:
    bad = testing.Relation("metrics", remote_app_name="bad", remote_app_data=app, remote_units_data={0: unit})

    out = changed(bad, controller())

    assert "\n" not in out.unit_status.message
    assert PASSWORD not in out.unit_status.message
    assert "192.0.2.9:17070" in targets(machine)
    assert PASSWORD not in (state_of(machine) / "prometheus/prometheus.yml").read_text()


def test_charm_has_the_relations_that_its_modules_name() -> None:
    meta = yaml.safe_load((Path(charm.__file__).parents[1] / "charmcraft.yaml").read_text())

    assert meta["requires"]["metrics"]["interface"] == "prometheus_scrape"
    assert meta["requires"]["prometheus-api"]["interface"] == "prometheus_api"
    assert meta["provides"]["receive-remote-write"]["interface"] == "prometheus_remote_write"
