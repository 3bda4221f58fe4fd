"""What the cluster's own tests make in a CIB, and how it is put back. All ids begin with the run's prefix.

An existing property of the cluster is changed in place. The same change stores its former value beside it in the CIB,
so that `clean` finds it after any end of the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from tippingpoint.targets.pacemaker.status import parse_cib
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, LOCAL, MULTIPLE, NO_MATCH, SYNC, XPATH, Answer

Call = Callable[[str, str | None, str | None, int], Awaitable[Answer]]
"""A call of the CIB (Link.call) whose return code is checked: OperationFailed unless it is 0, or no match."""
IN_GROUP = 3
"""Resources in the group, as in the configuration of CTS."""
_TIMEOUT = "90s"
"""The limit of every operation, as in the configuration of CTS."""


@dataclass(frozen=True)
class Things:
    """The resources and settings of a run's tests."""

    prefix: str
    """The beginning of all ids, such as `tp12345678-cts`."""

    def own(self, nodes: Iterable[str]) -> dict[str, str]:
        """By node: the id of the resource that prefers it."""
        return {node: f"{self.prefix}-on-{node}" for node in nodes}

    def resources(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The ids of all resources."""
        return (*self.own(nodes).values(), *(f"{self.prefix}-member-{n}" for n in range(1, IN_GROUP + 1)))

    @property
    def spare(self) -> str:
        """The id of a resource that a test adds and removes."""
        return f"{self.prefix}-spare"

    @property
    def ticket(self) -> str:
        """The id of the ticket that is updated to time what users experience."""
        return f"{self.prefix}-felt"

    async def make(self, call: Call, nodes: Iterable[str]) -> None:
        """Make the resources: one for each node, which prefers it, and a group."""
        own = self.own(nodes)
        alone = "".join(self._dummy(id) for id in own.values())
        group = "".join(self._dummy(f"{self.prefix}-member-{n}") for n in range(1, IN_GROUP + 1))
        await call(
            "cib_modify",
            "resources",
            f'<resources>{alone}<group id="{self.prefix}-group">{group}</group></resources>',
            SYNC | CAN_CREATE,
        )
        preferences = "".join(
            f'<rsc_location id="{id}-prefers" rsc="{id}" node={quoteattr(node)} score="100"/>'
            for node, id in own.items()
        )
        await call(
            "cib_modify", "constraints", f"<constraints>{preferences}</constraints>", SYNC | CAN_CREATE
        )

    async def standby(self, call: Call, node: str, node_id: str) -> None:
        """Set a node to standby."""
        id = f"{self.prefix}-node-{node_id}"
        data = (
            f"<nodes><node id={quoteattr(node_id)} uname={quoteattr(node)}><instance_attributes id={quoteattr(id)}>"
            f'<nvpair id={quoteattr(id + "-standby")} name="standby" value="on"/></instance_attributes></node></nodes>'
        )
        await call("cib_modify", "nodes", data, SYNC | CAN_CREATE)

    async def unstandby(self, call: Call, node_id: str) -> None:
        """Undo `standby`."""
        await call(
            "cib_delete", f"//instance_attributes[@id='{self.prefix}-node-{node_id}']", None, SYNC | XPATH
        )

    async def manage(self, call: Call, nodes: Iterable[str], managed: bool) -> None:
        """Have the cluster manage our resources, or leave them alone."""
        value = "true" if managed else "false"
        for id in (*self.own(nodes).values(), f"{self.prefix}-group"):
            tag = "group" if id.endswith("-group") else "primitive"
            meta = (
                f'<meta_attributes id="{id}-meta">'
                f'<nvpair id="{id}-managed" name="is-managed" value="{value}"/></meta_attributes>'
            )
            await call(
                "cib_modify",
                "resources",
                f'<resources><{tag} id="{id}">{meta}</{tag}></resources>',
                SYNC | CAN_CREATE,
            )

    async def forget(self, call: Call) -> None:
        """Delete the history of our resources: the cluster asks every node again whether they run there."""
        await call(
            "cib_delete", f"//lrm_resource[starts-with(@id,'{self.prefix}-')]", None, SYNC | XPATH | MULTIPLE
        )

    async def add(self, call: Call, id: str) -> None:
        """Add a resource."""
        await call("cib_modify", "resources", f"<resources>{self._dummy(id)}</resources>", SYNC | CAN_CREATE)

    async def remove(self, call: Call, id: str) -> None:
        """Delete a resource that `add` made."""
        await call("cib_delete", f"/cib/configuration/resources/primitive[@id='{id}']", None, SYNC | XPATH)

    async def set_property(self, call: Call, name: str, value: str) -> None:
        """Set a property of the cluster, and keep its former value for `restore_properties`."""
        crm_config = _crm_config(await call("cib_query", None, None, SYNC | LOCAL))
        found = [
            (set_.get("id", ""), pair)
            for set_ in crm_config.iterfind("cluster_property_set")
            if not set_.get("id", "").startswith(self.prefix)
            for pair in set_.iterfind("nvpair")
            if pair.get("name") == name
        ]
        sets = [self._set(f"{self.prefix}-options", f"{self.prefix}-{name}", name, value)]
        if found:
            of, pair = found[0]
            id, kept = pair.get("id", ""), f"{self.prefix}-kept-{pair.get('id', '')}"
            sets = [self._set(of, id, name, value)]
            if not any(each.get("id") == kept for each in crm_config.iter("nvpair")):
                sets.append(self._set(f"{self.prefix}-kept", kept, kept, pair.get("value", "")))
        data = f"<crm_config>{''.join(sets)}</crm_config>"
        await call("cib_modify", "crm_config", data, SYNC | CAN_CREATE)

    async def restore_properties(self, call: Call) -> None:
        """Undo every `set_property`."""
        crm_config = _crm_config(await call("cib_query", None, None, SYNC | LOCAL))
        kept = {
            pair.get("name", "").removeprefix(f"{self.prefix}-kept-"): pair.get("value", "")
            for pair in crm_config.iterfind(f"cluster_property_set[@id='{self.prefix}-kept']/nvpair")
        }
        await self._set_back(call, crm_config, kept)
        ours = f"//cluster_property_set[@id='{self.prefix}-kept' or @id='{self.prefix}-options']"
        await call("cib_delete", ours, None, SYNC | XPATH | MULTIPLE)

    async def _set_back(self, call: Call, crm_config: Element, kept: Mapping[str, str]) -> None:
        sets = [
            self._set(set_.get("id", ""), id, pair.get("name", ""), kept[id])
            for set_ in crm_config.iterfind("cluster_property_set")
            for pair in set_.iterfind("nvpair")
            if (id := pair.get("id", "")) in kept
        ]
        if sets:
            await call("cib_modify", "crm_config", f"<crm_config>{''.join(sets)}</crm_config>", SYNC)

    def _set(self, of: str, id: str, name: str, value: str) -> str:
        return (
            f"<cluster_property_set id={quoteattr(of)}><nvpair id={quoteattr(id)} name={quoteattr(name)} "
            f"value={quoteattr(value)}/></cluster_property_set>"
        )

    def _dummy(self, id: str) -> str:
        operations = "".join(
            f'<op id="{id}-{name}" name="{name}" interval="{interval}" timeout="{_TIMEOUT}"/>'
            for name, interval in (("start", "0s"), ("stop", "0s"), ("monitor", "10s"))
        )
        return (
            f'<primitive id="{id}" class="ocf" provider="pacemaker" type="Dummy"><operations>{operations}</operations>'
            "</primitive>"
        )


async def put_back(call: Call, prefix: str) -> int:
    """Put back what tests changed; returns how many nodes were in standby. `remove_resources` removes resources."""
    things = Things(f"{prefix}-cts")
    await things.restore_properties(call)
    path = f"/cib/configuration/nodes/node/instance_attributes[starts-with(@id,'{things.prefix}-')]"
    found = await call("cib_query", path, None, SYNC | LOCAL | XPATH)
    if found.code == NO_MATCH:
        return 0
    await call("cib_delete", path, None, SYNC | XPATH | MULTIPLE)
    return found.body.count(b"<instance_attributes ")


def _crm_config(answer: Answer) -> Element:
    found = parse_cib(answer.body).find("configuration/crm_config")
    return Element("crm_config") if found is None else found
