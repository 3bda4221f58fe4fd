"""The XML of a run's resources: primitives with their parameters, what they prefer, and the paths that find them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from tippingpoint.targets.pacemaker.plan import REMOTE
from tippingpoint.workloads.spawn.target import Item

REMOTE_MONITOR_MS = 30_000
"""How often the cluster monitors a remote node by default. Without a monitor, it never notices that one is gone."""
_ITEM = re.compile(r"(\d{3,})-(\d{4,})")


@dataclass(frozen=True)
class Names:
    """The ids of a run's resources: PREFIX-GROUP-NUMBER, and PREFIX-remote-NUMBER for remote nodes."""

    prefix: str

    def of(self, item: Item) -> str:
        """The id of a thing."""
        return f"{self.prefix}-{item.group:03d}-{item.number:04d}"

    def remote(self, number: int) -> str:
        """The id of a remote node that the run adds before its stages."""
        return f"{self.prefix}-remote-{number:04d}"

    def item(self, id: str) -> Item | None:
        """The thing with this id; None if no thing of the run has it."""
        found = _ITEM.fullmatch(id.removeprefix(f"{self.prefix}-")) if id.startswith(self.prefix) else None
        if found is None:
            return None
        item = Item(int(found[1]), int(found[2]))
        return item if self.of(item) == id else None


def primitive(
    id: str, agent: str, parameters: Mapping[str, str], monitor_ms: int, *, stopped: bool = False
) -> str:
    """The element of a resource."""
    what, *provider, type = agent.split(":")
    inside = ""
    if parameters:
        pairs = "".join(
            f"<nvpair id={quoteattr(f'{id}-parameter-{number}')} name={quoteattr(name)} value={quoteattr(value)}/>"
            for number, (name, value) in enumerate(sorted(parameters.items()))
        )
        inside += f'<instance_attributes id="{id}-parameters">{pairs}</instance_attributes>'
    if agent == REMOTE and not monitor_ms:
        monitor_ms = REMOTE_MONITOR_MS
    if monitor_ms:
        inside += f'<operations><op id="{id}-monitor" name="monitor" interval="{monitor_ms}ms"/></operations>'
    if stopped:
        inside += _role(id, "Stopped")
    of = f" provider={quoteattr(provider[0])}" if provider else ""
    return f'<primitive id="{id}" class={quoteattr(what)}{of} type={quoteattr(type)}>{inside}</primitive>'


def with_role(id: str, role: str, group: str = "") -> str:
    """The change that gives a resource, which may be in a group, a role: `Started` or `Stopped`."""
    changed = f'<primitive id="{id}">{_role(id, role)}</primitive>'
    return f"<resources>{f'<group id={quoteattr(group)}>{changed}</group>' if group else changed}</resources>"


def preference(id: str, node: str) -> str:
    """The constraint that keeps a resource on a node as long as that node accepts it."""
    return f'<rsc_location id="{id}-prefers" rsc="{id}" node={quoteattr(node)} score="INFINITY"/>'


def configured(ids: Iterable[str]) -> str:
    """The XPath of resources with these ids, and of all that the configuration has about them."""
    ids = list(ids)
    named, told = (" or ".join(f"{where}='{id}'" for id in ids) for where in ("@id", "."))
    return f"/cib/configuration/resources/*[{named}]|/cib/configuration/constraints/*[@*[{told}]]"


def node_entries(ids: Iterable[str]) -> str:
    """The XPath of what the CIB keeps about remote nodes that are gone."""
    tests = " or ".join(f"@id='{id}'" for id in ids)
    return f"/cib/configuration/nodes/node[{tests}]|/cib/status/node_state[{tests}]"


def _role(id: str, role: str) -> str:
    return (
        f'<meta_attributes id="{id}-meta"><nvpair id="{id}-role" name="target-role" value="{role}"/>'
        "</meta_attributes>"
    )
