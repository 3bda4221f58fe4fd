"""The maker of a plan's machines, by the kind of its `target.made`."""

from __future__ import annotations

from tippingpoint.targets.maas.access import MaasAccess
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.composed import ComposedMachines
from tippingpoint.targets.maas.made import Composed, Virtme
from tippingpoint.targets.maas.maker import Maker
from tippingpoint.targets.maas.registered import RegisteredMachines
from tippingpoint.targets.maas.virtme.machines import VirtmeMachines
from tippingpoint.targets.maas.workspace import MaasWorkspace


def maker_of(workspace: MaasWorkspace, known: MaasAccess, client: MaasClient) -> Maker:
    """Return the maker of a run's machines, which is not open yet."""
    made = workspace.target.made
    if isinstance(made, Composed):
        return ComposedMachines(made, workspace, client)
    if isinstance(made, Virtme):
        return VirtmeMachines(made, workspace, client, known.power)
    return RegisteredMachines(made, workspace, client, known.power)
