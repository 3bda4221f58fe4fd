"""Matches hosts in Prometheus (named by units or addresses) with members of a run's target (named by the target).

Charms scrape each LXD member at its address under the name of a Juju unit (lxd/0). Other exporters of a machine may use
another name. A host is the member with its address, or with the machine's own name.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import numpy as np

from tippingpoint.monitoring.prometheus import Sampled, ScrapedTarget
from tippingpoint.monitoring.query_packs import host_of
from tippingpoint.rundir.cluster_events import Member

INSTANCES = ("up{$selector}", "max", ("host", "instance"))
NODES = ("node_uname_info{$selector}", "max", ("host", "nodename"))
"""Arguments of by_host for hosts' addresses and machines' own names. Prometheus' list of targets has present
addresses, which labels of Juju hide."""


def known_as(
    targets: Iterable[ScrapedTarget], instances: Iterable[Sampled], nodes: Iterable[Sampled]
) -> dict[str, set[str]]:
    """Return all known addresses and names of each host; a name with a domain also without it."""
    known: defaultdict[str, set[str]] = defaultdict(set)
    for target in targets:
        known[host_of(target.labels)] |= _spellings(target.url)
    for label, found in (("instance", instances), ("nodename", nodes)):
        for series in found:
            known[series.labels.get("host", "")] |= _spellings("//" + series.labels.get(label, ""))
    return {host: names for host, names in known.items() if host and names}


def member_names(members: Iterable[Member], known: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return hosts' names as members, without hosts that already have this name or are not members.

    Addresses take precedence over names, which two machines may share. A host that matches several members counts as
    none.
    """
    by_address: defaultdict[str, set[str]] = defaultdict(set)
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for member in members:
        by_name[member.name.lower()].add(member.name)
        where = f"[{member.address}]" if ":" in member.address else member.address
        for address in _spellings(f"//{where}"):
            by_address[address].add(member.name)
    called = set[str]().union(*by_name.values())
    found: dict[str, str] = {}
    for host, aliases in known.items():
        meant = _meant(by_address, aliases) or _meant(by_name, aliases)
        if len(meant) == 1 and host not in called:
            found[host] = meant.pop()
    return found


def renamed(found: list[Sampled], names: Mapping[str, str]) -> list[Sampled]:
    """Rename series by members. If two names of one host become one, both were scraped; the larger value counts."""
    if not any(series.labels.get("host") in names for series in found):
        return found
    together: defaultdict[tuple[tuple[str, str], ...], list[Sampled]] = defaultdict(list)
    for series in found:
        host = series.labels.get("host", "")
        labels = {**series.labels, "host": names.get(host, host)}
        together[tuple(sorted(labels.items()))].append(series._replace(labels=labels))
    return [same[0] if len(same) == 1 else _largest(same) for same in together.values()]


def _largest(same: list[Sampled]) -> Sampled:
    times = np.unique(np.concatenate([series.times for series in same]))
    values = np.full(len(times), np.nan)
    for series in same:
        places = np.searchsorted(times, series.times)
        values[places] = np.fmax(values[places], series.values)
    return Sampled(same[0].labels, times, values)


def _meant(members: Mapping[str, set[str]], aliases: Iterable[str]) -> set[str]:
    return set[str]().union(*(members.get(alias, ()) for alias in aliases))


def _spellings(url: str) -> set[str]:
    """Return the spellings of a URL's host; empty for a loopback or missing host."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return set()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return {host, host.partition(".")[0]} - {"", "localhost"}
    return set() if address.is_loopback else {str(address)}
