"""What the Juju benchmarks share: one unit whose agent claims everything, on a patched simulator."""

from __future__ import annotations

from pathlib import Path

import yaml

from lab.juju.simulator import JujuLab
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.hollow import HollowFleet, make_model


async def make_agent(access: ControllerAccess) -> tuple[str, Identity]:
    """The UUID of a new model with one unit in it, and that unit's login."""
    model = await make_model(access, "bench")
    client = ApiClient(access.addresses, access.ca)
    fleet = HollowFleet(client, access, model, "bench", "w0")
    await fleet.open()
    await fleet.grow(["bench"], 1, lambda *_: None)
    agent = fleet.identity("bench/0")
    await fleet.close()
    await client.close()
    return model, agent


def agent_conf(directory: Path, lab: JujuLab, model: str, agent: Identity) -> Path:
    """The unit's agent.conf, as a machine of its own would have it."""
    path = directory / "agent.conf"
    path.touch(mode=0o600)
    content = {
        "tag": agent.tag,
        "model": f"model-{model}",
        "apiaddresses": lab.addresses,
        "cacert": lab.ca,
        "apipassword": agent.password,
    }
    path.write_text(yaml.safe_dump(content))
    return path
