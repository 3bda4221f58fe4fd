"""An agent as systemd starts it, and the leader's part in small: what charms do between their agents."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.functional.forked import Forked
from tests.functional.program import WITHIN_S, no_traceback, until
from tests.functional.spawn_runs import crash
from tippingpoint.agent.client import AgentAway, call
from tippingpoint.conduct.director import begin_run, conduct, judge_request, to_judge
from tippingpoint.conduct.figure_messages import FigureNews
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport
from tippingpoint.plan.read import Plan

T = TypeVar("T")

_HOOKS_EVERY_S = 0.2
"""At each hook the whole run goes to each agent, and is read by it."""


class Agent:
    """One agent, with a state directory of its own; it is ended with the block."""

    def __init__(self, directory: Path, unit: str = "load-claimer/0", metrics: str = "") -> None:
        self.unit = unit
        self.state = directory / "state"
        self.socket = directory / "agent.sock"
        self.wake = directory / "wake"
        self._directory = directory
        self._metrics = ["--metrics", metrics] if metrics else []
        self.said = ""
        """What it has written to its log, as far as it has ended."""

    def __enter__(self) -> Agent:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.ended()
        assert no_traceback(self.said), self.said

    def start(self) -> None:
        """Start it, and wait until it answers."""
        arguments = ["agent", "--unit", self.unit, "--state", self.state, "--socket", self.socket]
        arguments += ["--wake", self.wake, *self._metrics]
        self._log = open(self._directory / "log", "ab")  # noqa: SIM115 (it is the process's)
        with self._log as log:
            self.process = Forked([*map(str, arguments)], output=log.fileno())
        until(lambda: self.process.poll() is not None or self._answers())
        assert self.process.poll() is None, self._read()

    def _answers(self) -> bool:
        with contextlib.suppress(AgentAway):
            return bool(call(self.socket, {"do": "ping"})["ok"])
        return False

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """What it answers to a request that it does not refuse."""
        answer = call(self.socket, {"do": do, **fields}, timeout=WITHIN_S)
        assert answer["ok"], answer
        return answer

    def refusal(self, do: str, **fields: Any) -> str:
        """Why it refuses a request."""
        answer = call(self.socket, {"do": do, **fields}, timeout=WITHIN_S)
        assert not answer["ok"], answer
        return str(answer["problem"])

    def done(self, do: str, **fields: Any) -> str:
        """What the task comes to that a request begins."""
        task = self.ask(do, **fields)["task"]
        return str(until(lambda: (told := self.ask("task", id=task))["done"] and told)["text"])

    def word(self) -> UnitWord | None:
        """What it says of its part."""
        said = self.ask("word")["word"]
        return None if said is None else UnitWord.model_validate(said)

    def holds(self) -> int:
        """How many leases or things it says that its part has up; 0 before the part tells."""
        word = self.word()
        return word.progress.held if word is not None and word.progress is not None else 0

    def result(self) -> dict[str, str] | None:
        """What its part came to."""
        return self.ask("word")["result"]

    def orders(
        self,
        run: SharedRun | None,
        target: Mapping[str, Any],
        reference: str = "",
        lost: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """Tell it of the run there is, and as the leader's of the units that this lost."""
        told = None if run is None else run.model_dump(mode="json")
        self.ask(
            "orders",
            run=told,
            target=dict(target),
            unit=self.unit,
            reference=reference,
            address="127.0.0.1",
            lost=list(lost),
            **more,
        )

    def kill(self) -> None:
        """End it as a crash does; its workers notice by themselves."""
        self.process.kill()
        self.ended()

    def lose(self) -> None:
        """End it as a machine's death does: its workers with it."""
        crash(self.process)
        self.ended()

    def ended(self, within: float = WITHIN_S) -> int:
        """Its exit code."""
        code = self.process.wait(within)
        self.said = self._read()
        return code

    def _read(self) -> str:
        return (self._directory / "log").read_text()


class Leader:
    """Conducts a run of these agents, as the leader's charm does at its hooks."""

    def __init__(
        self,
        plan: Plan,
        agents: list[Agent],
        target: Mapping[str, Any],
        prometheus: Mapping[str, Any] | None = None,
    ) -> None:
        self.agents = agents
        self.leading = agents[0]
        """The agent of the leader's unit."""
        self._prometheus = prometheus
        self.run = begin_run(plan, [agent.unit for agent in agents], time.time())
        self.words: dict[str, UnitWord | None] = {}
        self._target = target

    def hook(self) -> None:
        """One round: everybody's word, and the orders that follow from them."""
        for agent in self.agents:
            if agent.process.poll() is None:
                clocks = [word.clock for word in self.words.values() if word is not None and word.clock]
                leads = agent is self.leading
                reached = {"leads": leads, "prometheus": self._prometheus}
                agent.orders(self.run, self._target, clocks[0] if clocks else "", **reached)
                self.words[agent.unit] = agent.word()
        told = self.leading.ask("word")["figures"] if self.leading.process.poll() is None else None
        news = None if told is None else FigureNews.model_validate(told)
        self.run = conduct(self.run, self.words, time.time(), news=news)
        after = to_judge(self.run, self.words)
        if after is not None:
            self.run = conduct(self.run, self.words, time.time(), self._following(after), news)

    def _following(self, after: int) -> NextLoad | None:
        """What follows a load of a search, as the leader's agent judges it."""
        reports = {agent.unit: agent.ask("word")["report"] for agent in self.agents}
        told = {unit: ProbeReport.model_validate(report) for unit, report in reports.items() if report}
        answer = self.leading.ask("judge", **judge_request(self.run, after, self.words, told))
        return None if answer["next"] is None else NextLoad.model_validate(answer["next"])

    def until(self, found: Callable[[], T], within: float = WITHIN_S) -> T:
        """Conduct until something is so; returns what was found."""

        def look() -> T:
            self.hook()
            return found()

        return until(look, within=within, every=_HOOKS_EVERY_S)

    def phases(self) -> list[str]:
        """The phase of each unit."""
        return [word.phase if word is not None else "" for word in self.words.values()]


@contextlib.contextmanager
def workers_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Waits at the end of the block until the workers that a process has now are gone."""
    pid = process.pid
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    yield
    until(lambda: not any(_lives(child) for child in children))


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return b"tippingpoint.play.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
