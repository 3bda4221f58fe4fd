"""Where resources are, by lists and by the notifications between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.status import Version, read_status
from tippingpoint.workloads.spawn.target import SpawnFailed

DUMMY = "tp12345678-000-0000"


def cib(history: str = "", attributes: str = "", version: int = 1) -> bytes:
    """A cluster of one node with one resource of the run, with this history and these attributes of the node."""
    return (
        f'<cib admin_epoch="0" epoch="1" num_updates="{version}" dc-uuid="1" have-quorum="1"><configuration>'
        f'<nodes><node id="1" uname="node1"/></nodes><resources><primitive id="{DUMMY}" class="ocf" '
        'provider="pacemaker" type="Dummy"/></resources></configuration><status><node_state id="1" uname="node1" '
        'in_ccm="true" crmd="online" join="member" expected="member"><transient_attributes id="1">'
        f'<instance_attributes id="s">{attributes}</instance_attributes></transient_attributes><lrm id="1">'
        f'<lrm_resources><lrm_resource id="{DUMMY}" type="Dummy" class="ocf" provider="pacemaker">{history}'
        "</lrm_resource></lrm_resources></lrm></node_state></status></cib>"
    ).encode()


def operation(name: str, code: int = 0, status: int = 0, call: int = 5) -> str:
    """An operation as the cluster of 2.1.5 writes it."""
    return (
        f'<lrm_rsc_op id="{DUMMY}_last_0" operation_key="{DUMMY}_{name}_0" operation="{name}" '
        f'crm-debug-origin="do_update_resource" exit-reason="" on_node="node1" call-id="{call}" rc-code="{code}" '
        f'op-status="{status}" interval="0"/>'
    )


def notification(change: str, version: int = 2) -> bytes:
    """A notification as it comes over the wire, from where the notified part begins."""
    return (
        '<notify t="cib_notify" subt="cib_diff_notify"><cib_update_result><diff format="2"><version><source '
        f'admin_epoch="0" epoch="1" num_updates="1"/><target admin_epoch="0" epoch="1" num_updates="{version}"/>'
        f"</version>{change}</diff></cib_update_result></notify>"
    ).encode()


def forgotten(quote: str) -> bytes:
    path = f"/cib/status/node_state[@id='1']/lrm[@id='1']/lrm_resources/lrm_resource[@id='{DUMMY}']"
    return notification(f'<change operation="delete" path="{path.replace(chr(39), quote)}"/>')


def live_at(body: bytes) -> Live:
    live = Live("tp12345678")
    live.see(read_status(body))
    return live


def in_loop(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_notification_ends_a_wait_for_a_start() -> None:
    async def play() -> None:
        # given a resource that is being started, and a wait for it
        live = live_at(cib(operation("start", 193, -1, -1)))
        wait = asyncio.ensure_future(live.until(DUMMY, lambda: live.at.get(DUMMY), starts=True))
        await asyncio.sleep(0)
        assert not wait.done()
        # when the node says that it has started
        live.hear(notification(f"<change-result>{operation('start')}</change-result>", version=7))
        # then the wait ends with the node
        assert await wait == "node1"
        assert live.version == Version(0, 1, 7)
        assert not live.is_awaited

    in_loop(play())


def test_a_start_that_failed_or_is_pending_is_none() -> None:
    live = live_at(cib())
    for unfinished in (operation("start", 1, 4), operation("start", 193, -1), operation("monitor", 7)):
        live.hear(notification(unfinished))
    assert live.at == {}


@pytest.mark.parametrize("quote", ["'", "&apos;"])
def test_a_resource_is_forgotten_once_no_node_has_its_history(quote: str) -> None:
    live = live_at(cib(operation("start")))
    assert (live.at, live.is_forgotten(DUMMY)) == ({DUMMY: "node1"}, False)
    live.hear(notification(operation("stop")))
    assert (live.at, live.is_forgotten(DUMMY)) == ({}, False)
    live.hear(forgotten(quote))
    assert live.is_forgotten(DUMMY)


def test_the_state_of_a_node_that_is_gone_takes_its_history_with_it() -> None:
    live = live_at(cib(operation("start")))
    live.hear(
        notification(
            '<change operation="delete" path="/cib/status/node_state[@id=&apos;1&apos;]/lrm[@id=&apos;1&apos;]"/>'
        )
    )
    assert live.is_forgotten(DUMMY)
    assert live.at == {}


def test_resources_of_others_are_not_looked_at() -> None:
    live = live_at(cib())
    live.hear(notification(operation("start").replace("tp12345678", "tp87654321")))
    assert live.at == {}


def test_what_every_node_failed_to_start_ends_the_wait_for_it() -> None:
    async def play() -> None:
        # given a resource whose start failed on the only node
        live = Live("tp12345678")
        wait = asyncio.ensure_future(live.until(DUMMY, lambda: live.at.get(DUMMY), starts=True))
        await asyncio.sleep(0)
        failed = operation("start", 6, 4).replace('exit-reason=""', 'exit-reason="no such option"')
        live.see(read_status(cib(failed, f'<nvpair name="fail-count-{DUMMY}#start_0" value="INFINITY"/>')))
        # then the wait says why
        with pytest.raises(SpawnFailed, match=r"start: wrong configuration, no such option \(6\)") as caught:
            await wait
        assert caught.value.kind == "setting"
        # and a resource that failed once, and may still be started, is not given up
        live.see(read_status(cib(failed, f'<nvpair name="fail-count-{DUMMY}#start_0" value="1"/>')))
        assert live.broken == {}

    in_loop(play())
