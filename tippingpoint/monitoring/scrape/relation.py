"""Reads the relation prometheus_scrape, of LXD, a Juju controller or any other charm, into jobs and rules.

Its schema is that of the charm library prometheus_k8s.v0.prometheus_scrape (0.61). Its jobs are Prometheus' own, except
that "*" stands for each unit's address, and certificates are inline instead of file names. Unusable parts of a databag
are left out, and reported in a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from tippingpoint.monitoring.scrape.jobs import (
    INTERVAL,
    MOST_SAMPLES,
    MOST_TARGETS,
    SLOWEST,
    Found,
    Group,
    Job,
    Rules,
    is_label,
    is_path,
    read_address,
    told,
)
from tippingpoint.util.durations import parse_duration

LARGEST_TEXT = 4 << 20
"""The most characters of one text in a databag; Juju itself allows 16 MiB for a relation's settings."""
MOST_JOBS = 200
MOST_RULES = 1000

_Line = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Text = Annotated[str, StringConstraints(max_length=65_536, pattern=r"^[^\x00]*$")]
_Labels = Annotated[dict[_Line, _Line], Field(max_length=40)]
_WILDCARD = re.compile(r"\*(?::(\d{1,5}))?")
_DURATION = re.compile(r"(?:\d{1,4}h)?(?:\d{1,4}m)?(?:\d{1,5}s)?(?:\d{1,9}ms)?")
_TOPOLOGY = re.compile(r"%%juju_topology%%\s*,?")
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|key|auth|cred")
_UNIT = re.compile(r"[a-z0-9-]{1,200}/\d{1,9}")
_LIST = TypeAdapter[list[Any] | None](list[Any] | None)
_MAPPING = TypeAdapter[dict[str, Any] | None](dict[str, Any] | None)
_Read = TypeVar("_Read", bound=BaseModel)
_Content = TypeVar("_Content")


class _Given(BaseModel):
    """Data from others. Numbers are accepted as texts, and unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True, hide_input_in_errors=True)


class _Tls(_Given):
    ca: _Text = ""
    ca_file: _Text = ""
    cert: _Text = ""
    cert_file: _Text = ""
    key: _Text = ""
    key_file: _Text = ""
    server_name: _Line = ""
    insecure_skip_verify: bool = False


class _BasicAuth(_Given):
    username: _Line = ""
    password: _Line = ""


class _Authorization(_Given):
    type: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,40}$")] = "Bearer"
    credentials: _Line = ""


class _StaticConfig(_Given):
    targets: list[_Line] = []
    labels: _Labels | None = None


class _Relabel(_Given):
    source_labels: list[_Line] | None = None
    separator: _Line | None = None
    target_label: _Line | None = None
    regex: _Line | None = None
    modulus: Annotated[int, Field(ge=0, le=1 << 62)] | None = None
    replacement: _Line | None = None
    action: _Line | None = None


class _Job(_Given):
    job_name: _Line | None = None
    metrics_path: _Line | None = None
    scheme: _Line | None = None
    params: Annotated[dict[_Line, list[_Line]], Field(max_length=40)] | None = None
    scrape_interval: _Line | None = None
    scrape_timeout: _Line | None = None
    sample_limit: Annotated[int, Field(ge=0)] | None = None
    static_configs: list[_StaticConfig] | None = None
    relabel_configs: Annotated[list[_Relabel], Field(max_length=100)] | None = None
    metric_relabel_configs: Annotated[list[_Relabel], Field(max_length=100)] | None = None
    tls_config: _Tls | None = None
    basic_auth: _BasicAuth | None = None
    authorization: _Authorization | None = None


class _Topology(_Given):
    model: _Line = ""
    model_uuid: _Line = ""
    application: _Line = ""
    charm_name: _Line = ""

    def labels(self) -> dict[str, str]:
        """The labels of series, without empty ones."""
        said = {
            "juju_model": self.model,
            "juju_model_uuid": self.model_uuid,
            "juju_application": self.application,
            "juju_charm": self.charm_name,
        }
        return {name: value for name, value in said.items() if value}


class _Rule(_Given):
    record: _Line | None = None
    alert: _Line | None = None
    expr: _Text
    lasts: Annotated[_Line | None, Field(alias="for")] = None
    labels: _Labels | None = None
    annotations: Annotated[dict[_Line, _Text], Field(max_length=40)] | None = None


class _RuleGroup(_Given):
    name: _Line = ""
    interval: _Line | None = None
    rules: list[Any] = []


class _RuleFile(_Given):
    groups: list[Any] = []


@dataclass(frozen=True)
class _Unit:
    name: str
    address: str
    path: str
    known_by: Sequence[str]
    """The hosts by which a job may name the unit."""


def jobs_of_relation(
    owner: str, application: Mapping[str, str], units: Mapping[str, Mapping[str, str]]
) -> Found:
    """Read the other side's bags: that of its application, and those of its units by name.

    `owner` is the relation's name in problems. Labels are as in COS: juju_model, juju_model_uuid, juju_application,
    juju_charm and, for a unit's target, juju_unit. The target's `instance` is then made from all of them.
    """
    found = Found()
    topology = _topology(owner, application, found)
    known = [unit for name, bag in units.items() if (unit := _unit(owner, name, bag, found)) is not None]
    given = _parsed(owner, "scrape_jobs", application, _LIST, found) or []
    if len(given) > MOST_JOBS:
        found.problems.append(told(owner, "scrape_jobs", str(len(given)), f"at most {MOST_JOBS}"))
    for number, content in enumerate(given[:MOST_JOBS]):
        place = f"scrape_jobs.{number}"
        job = _validated(owner, place, _Job, content, found)
        if job is not None:
            _add_job(_Place(owner, place, found), job, topology, known)
    _add_rules(owner, application, topology, found)
    return found


def application_of(application: Mapping[str, str]) -> tuple[str, str]:
    """Return model uuid and name of the application that wrote this bag, as in COS's labels."""
    labels = _topology("", application, Found())
    return labels.get("juju_model_uuid", ""), labels.get("juju_application", "")


@dataclass(frozen=True)
class _Place:
    """A place in a databag, for reporting problems."""

    owner: str
    path: str
    found: Found

    def tell(self, field: str, value: str, accepted: str) -> None:
        """Report a problem of one field."""
        self.found.problems.append(told(self.owner, f"{self.path}.{field}", value, accepted))


def _topology(owner: str, bag: Mapping[str, str], found: Found) -> dict[str, str]:
    given = _parsed(owner, "scrape_metadata", bag, _MAPPING, found)
    if given is None:
        return {}
    topology = _validated(owner, "scrape_metadata", _Topology, given, found)
    return {} if topology is None else topology.labels()


def _unit(owner: str, name: str, bag: Mapping[str, str], found: Found) -> _Unit | None:
    """Read a unit from its bag; None if its address has not arrived yet."""
    if not _UNIT.fullmatch(name):
        found.problems.append(told(owner, "units", name, "the name of a unit"))
        return None
    said = bag.get("prometheus_scrape_unit_address") or bag.get("prometheus_scrape_host") or ""
    address = said or bag.get("ingress-address") or ""
    if not address:
        return None
    host = read_address(f"[{address}]" if address.count(":") > 1 and "[" not in address else address)
    if host is None:
        found.problems.append(told(owner, f"{name}: prometheus_scrape_unit_address", address, "an address"))
        return None
    path = bag.get("prometheus_scrape_unit_path", "").rstrip("/")
    if path and not is_path(path):
        found.problems.append(told(owner, f"{name}: prometheus_scrape_unit_path", path, "an absolute path"))
        return None
    own_name = bag.get("prometheus_scrape_unit_name", "")
    if not _UNIT.fullmatch(own_name):  # its name in its own model, which may differ from the one here
        own_name = name
    others = (
        bag.get(key, "") for key in ("ingress-address", "private-address", "prometheus_scrape_unit_fqdn")
    )
    return _Unit(own_name, host, path, [host.strip("[]"), *(other for other in others if other)])


def _add_job(place: _Place, given: _Job, topology: Mapping[str, str], units: Sequence[_Unit]) -> None:
    """Add the jobs of one entry of scrape_jobs: one for each path of its units."""
    identifier = "_".join(topology.values()).replace("/", "_")
    name = "_".join(part for part in ("juju", identifier, "prometheus_scrape", given.job_name) if part)
    path = given.metrics_path or "/metrics"
    scheme = (given.scheme or "http").lower()
    if not is_path(path):
        place.tell("metrics_path", path, "an absolute path, without a query")
        return
    if scheme not in ("http", "https"):
        place.tell("scheme", scheme, "http or https")
        return
    job = _with_access(place, Job(place.owner, name, [], scheme, path), given)
    if job is None:
        return
    groups = _groups(place, given, topology, units)
    if not groups:
        return  # none of its units has joined yet
    for prefix, listed in groups.items():
        place.found.jobs.append(replace(job, path=prefix + path, groups=listed))


def _with_access(place: _Place, job: Job, given: _Job) -> Job | None:
    """Return the job with its limits, login and certificates; None if one of these is unusable."""
    interval = _seconds(place, "scrape_interval", given.scrape_interval)
    timeout = _seconds(place, "scrape_timeout", given.scrape_timeout)
    params = given.params or {}
    if any(_SECRET_NAME.search(key) for key in params):
        place.tell("params", "", "no login, which goes into basic_auth or authorization")
        return None
    job = replace(
        job,
        # A figure is as fine as its coarsest target, so no target is scraped less often than necessary.
        interval=min(interval, SLOWEST) if interval is not None and interval > INTERVAL else None,
        timeout=timeout or None,
        params=params,
        most_samples=given.sample_limit or MOST_SAMPLES,
        relabel=_steps(given.relabel_configs),
        relabel_metrics=_steps(given.metric_relabel_configs),
    )
    if given.basic_auth is not None and given.basic_auth.password:
        job = replace(job, username=given.basic_auth.username, password=given.basic_auth.password)
    elif given.authorization is not None and given.authorization.credentials:
        credentials = given.authorization.credentials
        job = replace(job, token=credentials, token_type=given.authorization.type)
    return job if given.tls_config is None else _with_tls(place, job, given.tls_config)


def _with_tls(place: _Place, job: Job, tls: _Tls) -> Job | None:
    texts: list[str] = []
    for field, text in (
        ("ca_file", tls.ca or tls.ca_file),
        ("cert_file", tls.cert or tls.cert_file),
        ("key_file", tls.key or tls.key_file),
    ):
        if text.strip() and "-----BEGIN " not in text:
            # A file name from outside could be any file on this machine.
            place.tell(f"tls_config.{field}", "", "its text (PEM), not a file's name")
            return None
        texts.append(text)
    ca, certificate, key = texts
    if bool(certificate) != bool(key):
        place.tell("tls_config", "", "cert_file and key_file, or neither")
        return None
    if tls.insecure_skip_verify and not ca:
        place.tell(
            "tls_config.insecure_skip_verify",
            "true",
            "a certificate in ca_file (LXD has one once it is clustered): it is verified by the machine's authorities",
        )
    return replace(job, ca=ca, certificate=certificate, key=key, server_name=tls.server_name)


def _groups(
    place: _Place, given: _Job, topology: Mapping[str, str], units: Sequence[_Unit]
) -> dict[str, list[Group]]:
    """Return the job's targets by the path prefix of their unit; empty for targets that belong to no unit."""
    by_host = {host: unit for unit in units for host in unit.known_by}
    groups: dict[str, list[Group]] = {}
    count = 0
    configs = given.static_configs or [_StaticConfig(targets=["*:80"])]
    for number, config in enumerate(configs):
        labels = {name: value for name, value in (config.labels or {}).items() if is_label(name)}
        if len(labels) < len(config.labels or {}):
            refused = next(name for name in config.labels or {} if name not in labels)
            place.tell(f"static_configs.{number}.labels", refused, "the name of a label")
        of_units: dict[str, list[str]] = {}
        others: list[str] = []
        for target in config.targets:
            wildcard = _WILDCARD.fullmatch(target.strip())
            if wildcard is not None:
                for unit in units:
                    address = read_address(f"{unit.address}:{wildcard[1]}" if wildcard[1] else unit.address)
                    if address is not None:
                        of_units.setdefault(unit.name, []).append(address)
                continue
            address = read_address(target.strip())
            if address is None:
                place.tell(f"static_configs.{number}.targets", target, "HOST:PORT, or *:PORT for every unit")
                continue
            host = address.rpartition(":")[0] if re.search(r":\d+$", address) else address
            unit = by_host.get(host.strip("[]"))
            if unit is None:
                others.append(address)
            else:
                of_units.setdefault(unit.name, []).append(address)
        paths = {unit.name: unit.path for unit in units}
        for name, addresses in of_units.items():
            own = {**topology, "juju_unit": name}
            if (
                len(addresses) == 1
            ):  # otherwise its targets would share one instance, and their series would be merged
                of_juju = ("juju_model", "juju_model_uuid", "juju_application", "juju_unit")
                own["instance"] = "_".join(own[label] for label in of_juju if label in own)
            groups.setdefault(paths[name], []).append(Group(addresses, {**own, **labels}))
        if others:
            groups.setdefault("", []).append(Group(others, {**topology, **labels}))
        count += len(others) + sum(map(len, of_units.values()))
        if count > MOST_TARGETS:
            place.tell("static_configs", f"{count} targets", f"at most {MOST_TARGETS}")
            return {}
    return groups


def _add_rules(owner: str, bag: Mapping[str, str], topology: Mapping[str, str], found: Found) -> None:
    content = _parsed(owner, "alert_rules", bag, _MAPPING, found)
    file = None if content is None else _validated(owner, "alert_rules", _RuleFile, content, found)
    if file is None:
        return
    matchers = ", ".join(
        f'{name}="{_escaped(value)}"' for name, value in topology.items() if name != "juju_charm"
    )
    groups: list[dict[str, Any]] = []
    names: set[str] = set()
    count = 0
    for number, given in enumerate(file.groups):
        place = f"alert_rules.groups.{number}"
        group = _validated(owner, place, _RuleGroup, given, found)
        if group is None:
            continue
        rules: list[dict[str, Any]] = []
        for at, content in enumerate(group.rules):
            rule = _validated(owner, f"{place}.rules.{at}", _Rule, content, found)
            if rule is not None:
                rules.append(_rule(rule, matchers))
        count += len(rules)
        if count > MOST_RULES:
            found.problems.append(told(owner, "alert_rules", f"{count} rules", f"at most {MOST_RULES}"))
            break
        if rules:
            name = group.name or "rules"
            while name in names:
                name += "_"
            names.add(name)
            groups.append({"name": name, "rules": rules})
    if groups:
        found.rules.append(Rules(owner, groups))


def _rule(rule: _Rule, matchers: str) -> dict[str, Any]:
    content = rule.model_dump(exclude_none=True, by_alias=True)
    # The library's placeholder is inside the braces of a selector, which may end with a comma.
    content["expr"] = _TOPOLOGY.sub(lambda _: f"{matchers}," if matchers else "", rule.expr)
    return content


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _steps(steps: Sequence[_Relabel] | None) -> list[dict[str, Any]]:
    return [step.model_dump(exclude_none=True) for step in steps or ()]


def _seconds(place: _Place, field: str, text: str | None) -> int | None:
    """Read a duration in Prometheus' form, in whole seconds; None without one."""
    if not text:
        return None
    if _DURATION.fullmatch(text) is None:
        place.tell(field, text, "a duration, such as 30s")
        return None
    return int(parse_duration(text))


def _parsed(
    owner: str, key: str, bag: Mapping[str, str], adapter: TypeAdapter[_Content | None], found: Found
) -> _Content | None:
    """Read the JSON under a key; None if it is missing or unusable."""
    text = bag.get(key, "")
    if not text.strip():
        return None
    try:
        if len(text) <= LARGEST_TEXT:
            return adapter.validate_json(text)
    except ValueError:  # includes ValidationError
        pass
    what = "a list" if adapter is _LIST else "a mapping"
    found.problems.append(told(owner, key, "", f"{what} as JSON, of at most {LARGEST_TEXT >> 20} MiB"))
    return None


def _validated(owner: str, place: str, model: type[_Read], content: object, found: Found) -> _Read | None:
    """Validate data from others; None if they are wrong. Problems do not show the value, which may be a secret."""
    try:
        return model.model_validate(content)
    except (ValidationError, RecursionError) as problem:
        where, why = "", "a shallower value"
        if isinstance(problem, ValidationError):
            first = problem.errors(include_url=False, include_input=False)[0]
            where = "".join(f".{part}" for part in first["loc"])
            why = first["msg"].removeprefix("Input should be ")
        why = why[:1].lower() + why[1:]
        found.problems.append(told(owner, f"{place}{where}"[:200], "", why[:200]))
        return None
