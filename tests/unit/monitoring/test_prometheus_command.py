"""How a Prometheus of ours is started and found."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tippingpoint.errors import UserError
from tippingpoint.monitoring.scrape.server import (
    Serving,
    command,
    find_program,
    is_ready,
    problems,
    web_configuration,
)

SERVING = Serving(Path("/etc/x"), Path("/var/x"), "127.0.0.1:9481")


def test_the_command_line_names_its_configuration_data_and_retention() -> None:
    serving = Serving(Path("/etc/x"), Path("/var/x"), "0.0.0.0:9481", "7d", "2GB", Path("/etc/x/web.yml"))

    assert command(Path("/usr/bin/prometheus"), serving) == [
        "/usr/bin/prometheus",
        "--config.file=/etc/x/prometheus.yml",
        "--storage.tsdb.path=/var/x",
        "--storage.tsdb.retention.time=7d",
        "--storage.tsdb.retention.size=2GB",
        "--web.listen-address=0.0.0.0:9481",
        "--log.level=info",
        "--web.config.file=/etc/x/web.yml",
    ]


def test_samples_of_others_are_taken_only_where_that_is_asked_for() -> None:
    receiving = Serving(Path("c"), Path("d"), remote_write=True)

    assert "--web.enable-remote-write-receiver" in command(Path("prometheus"), receiving)
    assert "--web.enable-remote-write-receiver" not in command(Path("prometheus"), SERVING)


def test_nobody_can_stop_or_reload_it_by_http() -> None:
    assert not any("lifecycle" in word or "admin" in word for word in command(Path("prometheus"), SERVING))


@pytest.mark.parametrize(
    ("address", "tls", "url"),
    [
        ("127.0.0.1:9481", False, "http://127.0.0.1:9481"),
        ("0.0.0.0:9481", True, "https://127.0.0.1:9481"),
        ("[::]:9481", False, "http://[::1]:9481"),
        ("collector.example:443", True, "https://collector.example:443"),
    ],
)
def test_it_is_asked_where_it_listens(address: str, tls: bool, url: str) -> None:
    serving = Serving(Path("c"), Path("d"), address, web_config=Path("web.yml") if tls else None)

    assert serving.url == url


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:0", "host:65536", ":9090"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UserError, match=r"^address: .*: expected HOST:PORT, such as 127.0.0.1:9090$"):
        command(Path("prometheus"), Serving(Path("c"), Path("d"), address))


def test_its_web_configuration_names_its_certificate() -> None:
    read = yaml.safe_load(web_configuration(Path("/a b/it's.pem"), Path("/key.pem")))

    assert read == {
        "tls_server_config": {
            "cert_file": "/a b/it's.pem",
            "key_file": "/key.pem",
            "min_version": "TLS12",
        }
    }


def test_one_that_does_not_answer_is_not_ready_and_told(tmp_path: Path) -> None:
    serving = Serving(tmp_path, tmp_path, "127.0.0.1:1")

    assert not is_ready(serving)
    assert problems(serving)[-1] == "http://127.0.0.1:1: Prometheus does not answer"


def test_the_program_that_a_variable_names_comes_before_that_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in ("named", "path"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "prometheus").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for variable in ("TIPPINGPOINT_PROMETHEUS", "TIPPINGPOINT_PROMTOOL"):
        monkeypatch.delenv(variable, raising=False)

    assert find_program("prometheus") == tmp_path / "path" / "prometheus"
    assert find_program("promtool") is None
    monkeypatch.setenv("TIPPINGPOINT_PROMETHEUS", str(tmp_path / "named" / "prometheus"))
    assert find_program("prometheus") == tmp_path / "named" / "prometheus"
    monkeypatch.setenv("TIPPINGPOINT_PROMETHEUS", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"TIPPINGPOINT_PROMETHEUS: .*: expected an executable prometheus"):
        find_program("prometheus")
