"""The two forms of a lease in the CIB: a ticket, or a set of properties. Each has one attribute, `HOLDER:STAMP`.

The attribute is empty while nobody holds the lease. A change is conditional: its XPath matches the lease only if the
attribute is as expected, so that the cluster compares and sets in one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MADE = "tippingpoint"
"""The attribute of an element `tickets` that a run made, so that `clean` removes it once it is empty."""
TICKETS = f'<tickets {MADE}="made"/>'
"""The element for tickets. Pacemaker makes it with the first ticket, and leaves it."""


@dataclass(frozen=True)
class Store:
    """How leases are written. Its texts are formats: `id` is the lease's id, `held` its attribute's value."""

    section: str
    """The section of the CIB in which a lease is made."""
    made: str
    """The lease as it is made, below the section's element."""
    item: str
    """The element that has the attribute, as a change writes it."""
    path: str
    """The XPath of that element, with a condition."""
    attribute: str
    """The XPath of the attribute, from the element."""
    freed: re.Pattern[bytes]
    """Finds the ids of the leases that a notification says were freed.

    It matches the element as the change left it. Depending on the release, quotes in the path of the change are escaped
    or not.
    """
    every: str
    """The XPath of all leases whose ids begin with `id`."""

    def create(self, lease: str, held: str) -> str:
        """The data of a change that makes a lease, or overwrites it."""
        return self.made.format(id=lease, held=held)

    def change(self, lease: str, held: str) -> str:
        """The data of a change."""
        return self.item.format(id=lease, held=held)

    def where(self, lease: str, held: Iterable[str], or_of: str = "") -> str:
        """The XPath of a lease with one of these values, or with any that begins with `or_of`."""
        tests = [f"{self.attribute}='{each}'" for each in held]
        if or_of:
            tests.append(f"starts-with({self.attribute},'{or_of}')")
        return self.path.format(id=lease, condition=f" and ({' or '.join(tests)})" if tests else "")

    def all_of(self, prefix: str) -> str:
        """The XPath of all leases whose ids begin with a prefix."""
        return self.every.format(id=prefix)

    def read(self, answer: bytes) -> str | None:
        """The value in the answer to a query by `where`; None without one."""
        found = re.search(rb'\b%s="([^"]*)"' % self.attribute[1:].encode(), answer)
        return found[1].decode(errors="replace") if found else None


TICKET = Store(
    section="status",
    made='<status><tickets><ticket_state id="{id}" held="{held}"/></tickets></status>',
    item='<ticket_state id="{id}" held="{held}"/>',
    path="/cib/status/tickets/ticket_state[@id='{id}'{condition}]",
    attribute="@held",
    freed=re.compile(rb'<change-result><ticket_state id="([^"]*)" held=""'),
    every="/cib/status/tickets/ticket_state[starts-with(@id,'{id}')]",
)
CONFIG = Store(
    section="crm_config",
    made='<crm_config><cluster_property_set id="{id}"><nvpair id="{id}-held" name="{id}" value="{held}"/>'
    "</cluster_property_set></crm_config>",
    item='<nvpair id="{id}-held" name="{id}" value="{held}"/>',
    path="/cib/configuration/crm_config/cluster_property_set/nvpair[@id='{id}-held'{condition}]",
    attribute="@value",
    freed=re.compile(rb'<change-result><nvpair id="([^"]*)-held" name="[^"]*" value=""'),
    every="/cib/configuration/crm_config/cluster_property_set[starts-with(@id,'{id}')]",
)
STORES = {"ticket": TICKET, "config": CONFIG}
"""By the plan's word."""
