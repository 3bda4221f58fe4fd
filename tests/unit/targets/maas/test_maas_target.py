"""The contract of the target with a run: what its ledger has, and that its workers' load and `clean` follow from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.maas.simulator import MaasLab
from tippingpoint.errors import TargetError
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.ledger import ENTRY, MaasEntry
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.pools import make_pool
from tippingpoint.targets.maas.target import TARGET

RUN = "20261123-060550-maas-c2f4"


def plan(lab: MaasLab) -> SpawnPlan:
    return SpawnPlan.model_validate(
        {
            "name": "machines",
            "target": MaasTarget(kind="maas", credentials=lab.credentials),
            "workload": {"kind": "spawn", "concurrency": 1, "until": "started"},
            "stages": [{"instances": 1}],
        }
    )


async def test_what_a_run_makes_follows_from_its_id(tmp_path: Path) -> None:
    """Given a run's ledger, then another process reaches the region by it, and removes the run's pools."""
    with MaasLab() as lab:
        made = TARGET.new_entry(plan(lab), RUN, tmp_path)
        assert (made.run, made.prefix) == (RUN, name_prefix(RUN))
        read = ENTRY.model_validate_json(made.model_dump_json())
        assert read == made
        await TARGET.reach(read)
        workspace = await TARGET.take(read, plan(lab), print)
        assert TARGET.workspace.model_validate_json(workspace.model_dump_json()) == workspace
        client = MaasClient(access(read.target))
        await make_pool(client, workspace.prefix, workspace.run, 0)
        await client.close()
        assert await TARGET.clean(read, RUN, lambda what, done, goal: None) == 1
        assert await TARGET.clean(read, RUN, lambda what, done, goal: None) == 0


async def test_a_refused_key_ends_a_run_before_it_makes_anything(tmp_path: Path) -> None:
    with MaasLab() as lab:
        entry = TARGET.new_entry(plan(lab), RUN, tmp_path)
        lab.ask({"do": "revoke-keys"})
        with pytest.raises(TargetError) as problem:
            await TARGET.reach(entry)
    assert problem.value.refused
    assert isinstance(entry, MaasEntry)


async def test_a_probe_times_what_users_ask_for() -> None:
    with MaasLab(machines=3) as lab:
        section = MaasTarget(kind="maas", credentials=lab.credentials)
        said = await TARGET.probe(section, None)
        assert [line.split()[0] for line in said] == ["machine-list", "event-list", "tag-list", "fabric-list"]
        assert all(re.fullmatch(r"[a-z-]+ \d+ ms", line) for line in said)
