"""When the agent logs in to its target, with log-ins that a test answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tippingpoint.agent import login_check
from tippingpoint.agent.login_check import LoginCheck, Outcome
from tippingpoint.errors import TargetError
from tippingpoint.targets.secret import PLACE

TARGET = {"kind": "etcd", "endpoints": ["http://192.0.2.7:2379"], "credentials": f"{PLACE}/etcd.yaml"}
FILES = {"etcd.yaml": "username: u\npassword: hunter2\n"}


class Door:
    """Stands for the target: each log-in ends as a test says, and waits between them are counted, not waited for."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *answers: TargetError | None) -> None:
        self.answers = list(answers)
        self.knocks: list[tuple[str, int]] = []
        self.waits: list[float] = []
        self.news = 0
        self.busy = False
        self.runtime = tmp_path
        self.asked = asyncio.Event()
        self.told = asyncio.Event()
        monkeypatch.setattr(login_check, "log_in", self._log_in)
        self.login_check = LoginCheck(tmp_path, lambda: self.busy, self._changed, self._sleep)

    async def __aenter__(self) -> Door:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.login_check.close()

    async def _log_in(self, target: Any) -> None:
        await asyncio.sleep(0)
        self.knocks.append((target.credentials.read_text(), target.credentials.stat().st_mode & 0o777))
        answer = self.answers.pop(0)
        if not self.answers:
            self.asked.set()
        if answer is not None:
            raise answer

    def _changed(self) -> None:
        self.news += 1
        self.told.set()

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0 if self.answers else 3600)


def wrong_password() -> TargetError:
    return TargetError("target.credentials", "authentication failed", "a user", refused=True)


def gone() -> TargetError:
    return TargetError("192.0.2.7:2379", "192.0.2.7:2379: connection refused", "a server")


async def test_one_log_in_for_one_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Door(tmp_path, monkeypatch, None) as door:
        # given an access that is told in every hook
        assert door.login_check.tell(TARGET, FILES) == Outcome(trying=True)
        await door.told.wait()
        for _ in range(3):
            assert door.login_check.tell(TARGET, FILES) == Outcome()
        await asyncio.sleep(0)
    # when it lets us in, then it was asked once, by a file for nobody else, which is gone, and the charm is woken once
    assert door.knocks == [(FILES["etcd.yaml"], 0o600)]
    assert (door.news, list(tmp_path.iterdir())) == (1, [])


async def test_a_refusal_is_told_once_and_tried_again_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Door(tmp_path, monkeypatch, *[wrong_password() for _ in range(7)]) as door:
        door.login_check.tell(TARGET, FILES)
        await door.asked.wait()
        assert door.login_check.tell(TARGET, FILES) == Outcome("authentication failed", refused=True)
    assert door.news == 1
    assert door.waits[:6] == [180.0, 360.0, 720.0, 1440.0, 2880.0, 3600.0]


async def test_one_that_cannot_be_reached_is_tried_every_few_minutes_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Door(tmp_path, monkeypatch, gone(), gone(), None) as door:
        door.login_check.tell(TARGET, FILES)
        await door.asked.wait()
        await asyncio.sleep(0)
        assert door.login_check.tell(TARGET, FILES) == Outcome()
    # when it comes back, then the charm is told of both, and it is left alone
    assert door.waits == [180.0, 180.0]
    assert door.news == 2


async def test_the_address_stands_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Door(tmp_path, monkeypatch, gone()) as door:
        door.login_check.tell(TARGET, FILES)
        await door.asked.wait()
        await asyncio.sleep(0)
        assert door.login_check.tell(TARGET, FILES) == Outcome("192.0.2.7:2379: connection refused")


async def test_other_credentials_are_tried_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Door(tmp_path, monkeypatch, wrong_password(), None) as door:
        door.login_check.tell(TARGET, FILES)
        # given a password that is refused
        await door.told.wait()
        assert door.login_check.tell(TARGET, FILES).refused
        # when the secret has another password
        assert door.login_check.tell(TARGET, {"etcd.yaml": "username: u\npassword: right\n"}) == Outcome(
            trying=True
        )
        await door.asked.wait()
        # and when there is no access any more, then nothing of it is left
        assert door.login_check.tell({}, {}) == Outcome()
    assert [text for text, _ in door.knocks] == [FILES["etcd.yaml"], "username: u\npassword: right\n"]


async def test_nobody_logs_in_beside_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Door(tmp_path, monkeypatch, None) as door:
        door.busy = True
        door.login_check.tell(TARGET, FILES)
        for _ in range(20):
            await asyncio.sleep(0)
    assert door.knocks == []
