"""What a runner and its workers tell each other: what is said is what is heard."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.unit.play.run_ticks import tick_of
from tippingpoint.plan.claim import Stage
from tippingpoint.plan.grow import GrowStage
from tippingpoint.plan.spawn import SpawnStage
from tippingpoint.play.messages import (
    Begun,
    Command,
    Done,
    End,
    Evict,
    Evicted,
    Hold,
    Message,
    Pause,
    Paused,
    Prepared,
    Preparing,
    Ready,
    Refusal,
    Repair,
    command_in,
    line_of,
    message_in,
)
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.workloads.load import PrepareOrder, ShareOrder, StageOrder, TargetFacts

COMMANDS: list[Command] = [
    PrepareOrder(stages=[Stage(leases=10), SpawnStage(instances=3), GrowStage()], share=(0, 2), fresh=True),
    StageOrder(
        number=2,
        size=2.5,
        kind="storm",
        spec=Stage(leases=0, claims=2.5, hold=0.1),
        over=0.0,
        share=(1, 2),
        listed=None,
    ),
    ShareOrder(index=1, of=3),
    Hold(),
    Pause(),
    Repair(),
    Evict(member="m1"),
    End(release=False),
]
MESSAGES: list[Message] = [
    Ready(facts=TargetFacts("etcd", "3.5", ["m1"])),
    Refusal(exit_code=3, problem="nobody there"),
    Preparing(what="units", done=1, goal=2),
    Prepared(problem="no room"),
    Begun(),
    Paused(),
    Evicted(),
    tick_of(4, {"claim.ok": Histogram.of([900, 1100])}),
    Done(problem="disk full"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.do)
def test_a_worker_hears_each_command_as_it_was_told(command: Command) -> None:
    line = line_of(command)
    assert line.index(b"\n") == len(line) - 1
    assert command_in(line) == command


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.say)
def test_a_runner_hears_each_message_as_it_was_said(message: Message) -> None:
    line = line_of(message)
    assert line.index(b"\n") == len(line) - 1
    assert message_in(line) == message


def test_a_line_in_whose_middle_a_worker_was_killed_is_no_message() -> None:
    assert message_in(line_of(tick_of(4))[:20]) is None


def test_a_whole_line_that_says_nothing_known_is_a_fault_of_ours() -> None:
    with pytest.raises(ValidationError):
        message_in(b'{"say": "nothing known"}\n')
