"""The registry of targets: what each of them has to be for the rooms that ask no kind."""

from __future__ import annotations

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import section_of
from tippingpoint.plan.packages import kinds, module_of
from tippingpoint.rundir.ledger import Entry
from tippingpoint.targets.registry import target_of
from tippingpoint.targets.secret import secret_of
from tippingpoint.targets.target import Target


@pytest.mark.parametrize("kind", kinds())
def test_every_target_has_a_section_an_entry_a_secret_and_itself(kind: str) -> None:
    assert isinstance(target_of(kind), Target)
    assert target_of(kind) is target_of(kind)
    assert section_of(kind).plans
    entry = module_of(kind, "ledger").ENTRY
    assert issubclass(entry, Entry)
    assert entry.model_fields["kind"].default == kind
    assert secret_of(kind) is not None


def test_a_target_that_nobody_brings_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"^target.kind: ceph: expected one of etcd, juju, lxd, maas"):
        target_of("ceph")
    assert secret_of("ceph") is None
