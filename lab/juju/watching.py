"""The facades of watchers: the next event of one, and its end."""

from __future__ import annotations

from typing import Any

from lab.juju.methods import facade, method
from lab.juju.refusals import Refused, not_found
from lab.juju.rpc import Call
from lab.juju.watchers import Topic, Watcher, merge_notice

facade("NotifyWatcher")
facade("StringsWatcher")
facade("RelationUnitsWatcher", "unit", "machine")
facade("SecretsTriggerWatcher", "unit", "machine")


@method("NotifyWatcher", "Next")
def _next_notice(call: Call) -> None:
    _watcher(call).next(lambda _: call.answer({}), lambda: _stopped(call, "*eventsource.NotifyWatcher"))


@method("StringsWatcher", "Next")
@method("RelationUnitsWatcher", "Next")
@method("SecretsTriggerWatcher", "Next")
def _next_changes(call: Call) -> None:
    _watcher(call).next(
        lambda changes: call.answer({"watcher-id": "", "changes": changes}),
        lambda: _stopped(call, "*eventsource.NamespaceWatcher"),
    )


def _stopped(call: Call, kind: str) -> None:
    message = f"expected an error from {kind}, got nil: watcher has been stopped"
    call.session.refuse(call.number, Refused(message, "stopped"))


@method("NotifyWatcher", "Stop")
@method("StringsWatcher", "Stop")
@method("RelationUnitsWatcher", "Stop")
@method("SecretsTriggerWatcher", "Stop")
def _stop(call: Call) -> dict[str, Any]:
    _watcher(call).stop()
    call.session.end_watcher(call.id)
    return {}


def watch(call: Call, watcher: Watcher, *topics: Topic) -> str:
    """Add a watcher of some topics to the connection and return its id."""
    ends = [call.model.topics.watch(topic, watcher) for topic in topics]

    def end() -> None:
        for one in ends:
            one()

    return call.session.new_watcher(watcher, end if ends else None)


def notices(call: Call, *topics: Topic) -> dict[str, Any]:
    """Begin a watcher without content, and return the answer that names it."""
    return {"NotifyWatcherId": watch(call, Watcher(merge_notice), *topics)}


def _watcher(call: Call) -> Watcher:
    watcher = call.session.watchers.get(call.id)
    if watcher is None:
        raise not_found(f'watcher "{call.id}"')
    return watcher
