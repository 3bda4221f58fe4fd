"""The smallest lab there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.control import LabError, Member
from lab.places import Places


class TwoMembers:
    """Two members that live and die on paper."""

    def __init__(self) -> None:
        self.places = Places.everywhere()
        self.state = {"a": "running", "b": "running"}
        self.killed: list[tuple[str, str]] = []
        """The daemons that were killed, by their members."""

    @property
    def names(self) -> list[str]:
        return list(self.state)

    def members(self) -> list[Member]:
        return [
            Member(
                name=name,
                pid=None if state == "dead" else 100,
                running=state == "running",
                leader=name == "a",
            )
            for name, state in self.state.items()
        ]

    def kill(self, name: str) -> None:
        self.state[name] = "dead"

    def stop(self, name: str) -> None:
        self.state[name] = "stopped"

    def resume(self, name: str) -> None:
        self.state[name] = "running"

    def start(self, name: str) -> None:
        if self.state[name] != "dead":
            raise LabError(f"{name}: is running", "a member that is dead")
        self.state[name] = "running"

    def verbs(self) -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """A lab may kill daemons, too."""

        def kill_daemon(fields: dict[str, Any]) -> dict[str, Any]:
            self.killed.append((fields["member"], fields["daemon"]))
            return {"ok": True}

        return {"kill-daemon": kill_daemon}
