"""Builds Prometheus' configuration from the jobs and rules found in relations and settings.

Nothing here runs or connects. Prometheus shows prometheus.yml to everybody, so secrets are in separate files that it
names.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml

from tippingpoint.errors import one_line

INTERVAL = 15
"""Seconds between two scrapes of a target, as in COS; a job may ask for more, up to SLOWEST."""
TIMEOUT = 10
"""Seconds for one scrape; a job may ask for more, up to its interval."""
SLOWEST = 120
"""The most seconds between two scrapes. Prometheus ends a series after 5 minutes; packs look back over two scrapes."""
LARGEST_SCRAPE = 32 << 20
"""The most bytes of one scrape. 1000 LXD containers have about 10 MB. A target with more counts as down."""
MOST_SAMPLES = 250_000
"""The most samples of one scrape; 32 MiB of the shortest lines would be more."""
_LIMITS = {"label_limit": 64, "label_name_length_limit": 256, "label_value_length_limit": 4096}
GENERATORS_JOB = "tippingpoint"
"""The name of the job for generators."""
MOST_TARGETS = 1000
"""The most targets of one relation or setting."""
HEADER = "# Written by Tipping Point at each change of relations and settings: edits here are lost.\n"

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PATH = re.compile(r"/[!-~]{0,500}")


@dataclass(frozen=True)
class Group:
    """Targets (HOST:PORT) and the labels that are on all their series."""

    targets: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Job:
    """One scrape job as in Prometheus, with secrets and certificates as texts."""

    owner: str
    """The relation or setting that it comes from, for messages."""
    name: str
    groups: Sequence[Group]
    scheme: str = "http"
    path: str = "/metrics"
    params: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    interval: int | None = None
    """Seconds between scrapes; None for the configuration's own. `timeout` is alike."""
    timeout: int | None = None
    most_samples: int = MOST_SAMPLES
    relabel: Sequence[Mapping[str, Any]] = ()
    relabel_metrics: Sequence[Mapping[str, Any]] = ()
    server_name: str = ""
    ca: str = ""
    """PEM, like the next two; empty for the machine's own authorities."""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_type: str = "Bearer"


@dataclass(frozen=True)
class ScrapeAccess:
    """The authorities and the login for https targets. All may be empty."""

    ca: str = ""
    """PEM, like the next two; empty for the machine's own authorities."""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Rules:
    """Groups of rules for one rule file."""

    owner: str
    groups: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Found:
    """The jobs and rules of one relation or setting. Problems are lines without secrets, about parts left out."""

    jobs: list[Job] = field(default_factory=list[Job])
    rules: list[Rules] = field(default_factory=list[Rules])
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Configuration:
    """The files of a configuration directory, by their paths in it. Only the owner may read them."""

    files: dict[str, str]
    problems: list[str] = field(default_factory=list[str])


def configuration(found: Iterable[Found], interval: int = INTERVAL) -> Configuration:
    """Return the files that make Prometheus scrape all of this, every `interval` seconds.

    `check.checked` leaves out what Prometheus would refuse.
    """
    found = list(found)
    files: dict[str, str] = {}
    jobs: list[dict[str, Any]] = []
    names: set[str] = set()
    for job in (job for one in found for job in one.jobs):
        name = _unused(job.name, names)
        jobs.append(_scrape_config(job, name, interval, files))
    rules = [rules for one in found for rules in one.rules if rules.groups]
    paths: list[str] = []
    for one in rules:
        path = f"rules/{_slug(one.owner, str(len(paths)))}.yaml"
        files[path] = HEADER + dumped({"groups": list(one.groups)})
        paths.append(path)
    whole: dict[str, Any] = {
        "global": {
            "scrape_interval": f"{interval}s",
            "scrape_timeout": f"{min(TIMEOUT, interval)}s",
            "evaluation_interval": f"{interval}s",
        },
        "rule_files": paths,
        "scrape_configs": jobs,
    }
    files["prometheus.yml"] = HEADER + dumped(whole)
    return Configuration(files, [problem for one in found for problem in one.problems])


def static_targets(text: str, access: ScrapeAccess | None = None) -> Found:
    """Read the targets that an operator lists, separated by commas or newlines.

    Each is [http[s]://]HOST[:PORT][/PATH], optionally with labels (NAME=VALUE), separated by spaces. `access` is used
    for https targets only.
    """
    owner = "targets"
    problems: list[str] = []
    groups: dict[tuple[str, str], list[Group]] = {}
    entries = [words for part in re.split(r"[,\n\r]", text) if (words := part.split())]
    if len(entries) > MOST_TARGETS:
        problems.append(told(owner, "number", str(len(entries)), f"at most {MOST_TARGETS}"))
    for target, *rest in entries[:MOST_TARGETS]:
        scheme, slashes, place = target.rpartition("://")
        address, _, path = place.partition("/")
        labels = {name: value for name, equals, value in (word.partition("=") for word in rest) if equals}
        address = read_address(address) or ""
        scheme = scheme.lower() if slashes else "http"
        if not address or scheme not in ("http", "https") or not is_path("/" + path):
            problems.append(told(owner, "target", target, "[http[s]://]HOST[:PORT][/PATH]"))
        elif len(labels) != len(rest) or not all(is_label(name) for name in labels):
            accepted = f"NAME=VALUE for {address}, and a comma before another target"
            problems.append(told(owner, "labels", " ".join(rest), accepted))
        else:
            place = (scheme, "/" + path if path else "/metrics")
            groups.setdefault(place, []).append(Group([address], labels))
    jobs = [
        Job(
            owner,
            _job_name("targets", number),
            listed,
            scheme,
            path,
            **(vars(access) if access is not None and scheme == "https" else {}),
        )
        for number, ((scheme, path), listed) in enumerate(groups.items())
    ]
    if access not in (None, ScrapeAccess()) and not any(job.scheme == "https" for job in jobs):
        problems.append(told(owner, "certificates and login", "", "https:// before the targets they are for"))
    return Found(jobs, problems=problems)


def exporters(owner: str, addresses: Mapping[str, str]) -> Found:
    """Return a job for generators' exporters (HOST:PORT by unit), with labels of their Juju units."""
    found = Found()
    groups: list[Group] = []
    for unit, address in addresses.items():
        read = read_address(address)
        if read is None:
            found.problems.append(told(owner, unit, address, "HOST:PORT of its exporter"))
            continue
        labels = {"juju_application": unit.partition("/")[0], "juju_unit": unit, "instance": unit}
        groups.append(Group([read], labels))
    if groups:
        found.jobs.append(Job(owner, GENERATORS_JOB, groups))
    return found


def itself(address: str, ca: str = "") -> Found:
    """Return a job for the scraping Prometheus itself, at HOST:PORT; by https if `ca` is given."""
    job = Job("prometheus", "prometheus", [Group([address])], "https" if ca else "http", ca=ca)
    return Found([job])


def told(owner: str, place: str, value: str, accepted: str) -> str:
    """Format a problem as a line with the printable part of the value, without logins or keys.

    Misplaced JSON is not shown, because it may be a whole job with its login.
    """
    hidden = "PRIVATE KEY" in value or "@" in value or '"' in value
    shown = "" if value == "" else " (not shown):" if hidden else f" {one_line(value, 80)}:"
    return f"{owner}: {one_line(place, 200)}:{shown} expected {accepted}"


def read_address(text: str) -> str | None:
    """Read HOST or HOST:PORT, also with an IPv6 address, in Prometheus' form; None if it is neither."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    if colon and port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        return None
    if colon and not port and not text.endswith("]"):
        return None
    if ":" in host:
        try:
            host = f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
        except ValueError:
            return None
        if "%" in host:
            return None
    elif not _HOST.fullmatch(host):
        return None
    return f"{host}:{int(port)}" if port else host


def is_path(text: str) -> bool:
    """Return whether a text is an absolute path of a URL, without a query."""
    return bool(_PATH.fullmatch(text)) and urlsplit("http://host" + text).path == text


def is_label(name: str) -> bool:
    """Return whether a series may have a label of this name. Prometheus reserves names with two underscores."""
    return bool(_LABEL.fullmatch(name)) and not name.startswith("__") and len(name) <= 200


def dumped(content: Any) -> str:
    """Write content as YAML that Prometheus reads unambiguously."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=False, width=1 << 30)


def _scrape_config(job: Job, name: str, interval: int, files: dict[str, str]) -> dict[str, Any]:
    """Return the job for prometheus.yml, and add its secrets and certificates to `files`."""

    def in_file(kind: str, text: str) -> str:
        path = f"files/{_slug(name, job.owner)}.{kind}"
        files[path] = text
        return path

    config: dict[str, Any] = {
        "job_name": name,
        "scheme": job.scheme,
        "metrics_path": job.path,
        # All samples get Prometheus' own time, because a target's clock may be wrong.
        "honor_timestamps": False,
        # Otherwise the login would be sent to any redirect of a target.
        "follow_redirects": False,
        "body_size_limit": f"{LARGEST_SCRAPE >> 20}MB",
        "sample_limit": min(job.most_samples, MOST_SAMPLES),
        **_LIMITS,
    }
    if job.interval is not None:
        config["scrape_interval"] = f"{job.interval}s"
    if job.timeout is not None:
        config["scrape_timeout"] = f"{min(job.timeout, job.interval or interval)}s"
    if job.params:
        config["params"] = {key: list(values) for key, values in job.params.items()}
    tls: dict[str, Any] = {}
    if job.ca:
        tls["ca_file"] = in_file("ca.pem", job.ca)
    if job.certificate:
        tls["cert_file"] = in_file("cert.pem", job.certificate)
        tls["key_file"] = in_file("key.pem", job.key)
    if job.server_name:
        tls["server_name"] = job.server_name
    if tls and job.scheme == "https":
        config["tls_config"] = tls
    if job.password:
        config["basic_auth"] = {
            "username": job.username,
            "password_file": in_file("password", job.password),
        }
    elif job.token:
        config["authorization"] = {
            "type": job.token_type,
            "credentials_file": in_file("token", job.token),
        }
    config["static_configs"] = [
        {"targets": list(group.targets)} | ({"labels": dict(group.labels)} if group.labels else {})
        for group in job.groups
    ]
    if job.relabel:
        config["relabel_configs"] = [dict(step) for step in job.relabel]
    if job.relabel_metrics:
        config["metric_relabel_configs"] = [dict(step) for step in job.relabel_metrics]
    return config


def _unused(name: str, names: set[str]) -> str:
    """Return the name, or a similar one that no other job has."""
    number, unused = 1, name
    while unused in names:
        number += 1
        unused = f"{name}_{number}"
    names.add(unused)
    return unused


def _job_name(name: str, number: int) -> str:
    return name if number == 0 else f"{name}_{number + 1}"


def _slug(name: str, more: str) -> str:
    """Return a safe file name for somebody else's name; equal names get equal file names."""
    mark = hashlib.sha256(f"{name}\0{more}".encode(errors="replace")).hexdigest()[:12]
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower())[:60].strip('-')}-{mark}"
