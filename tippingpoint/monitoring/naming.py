"""What hosts are called: a run knows its target's members by the target's names, a Prometheus by units or addresses.

Charms scrape each LXD member at its address under the name of a Juju unit (lxd/0), and what else a machine exports may
come under another name. A host is the member that has its address, or that is called as the machine calls itself.
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
"""What by_host makes of these tells hosts' addresses and what machines call themselves; Prometheus' own list of its
targets tells where each is now, which labels of Juju's hide."""


def known_as(
    targets: Iterable[ScrapedTarget], instances: Iterable[Sampled], nodes: Iterable[Sampled]
) -> dict[str, set[str]]:
    """All addresses and names that are known of each host; of a name with a domain, the name alone as well."""
    known: defaultdict[str, set[str]] = defaultdict(set)
    for target in targets:
        known[host_of(target.labels)] |= _spellings(target.url)
    for label, found in (("instance", instances), ("nodename", nodes)):
        for series in found:
            known[series.labels.get("host", "")] |= _spellings("//" + series.labels.get(label, ""))
    return {host: names for host, names in known.items() if host and names}


def member_names(members: Iterable[Member], known: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Which host is which member, by that member's name; without hosts that are called so already, or are none's.

    Addresses go before names, which two machines may share. A host that could be several members is none of them.
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
    """Series by the names of members. What two names of one host gave was scraped twice: the larger counts."""
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
    """How the host of a URL may be written; nothing for one that is every machine's own, or where there is none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return set()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return {host, host.partition(".")[0]} - {"", "localhost"}
    return set() if address.is_loopback else {str(address)}
