"""Events of a run as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tippingpoint.play.progress import known_words
from tippingpoint.play.watcher import SearchSoFar
from tippingpoint.rundir.event_words import event_words


@pytest.mark.parametrize(
    ("event", "fields", "words"),
    [
        ("note", {"text": "no TLS"}, "note: no TLS"),
        ("found", {"ended": "generator", "limit": None, "low": 287.87, "high": None},
         "the search is over: the generator itself is the bottleneck at larger loads"),
        ("found", {"ended": "resolution", "limit": 4100.0, "low": 3700.0, "high": 4600.0},
         "the search is over: the limit is between 3,700 and 4,600 with 95 %, and the interval is as narrow as"
         " requested"),
        ("fault", {"do": "kill", "member": "m2"}, "fault: kill m2"),
        ("fault", {"do": "kill", "member": "m2", "daemon": "controld"}, "fault: kill controld of m2"),
        ("fault", {"do": "drop-claims"}, "fault: a restart storm, every claim is dropped and claimed again"),
        ("worker-cut", {"worker": "1", "exit_code": 3, "problem": "no memory"}, "worker 1 died: no memory"),
        ("cleaned", {"removed": 1}, "removed what the run had left in its target (1)"),
        ("cleaned", {"removed": 2061}, "removed what the run had left in its target (2,061)"),
        ("waited", {"seconds": 12.34, "why": "others used 40 %", "gone": True},
         "waited 12.3 s because others used 40 %; they have gone"),
        ("recovering", {"size": 400, "held": True, "after": 12.0, "seconds": 5.0},
         "back at 400: thresholds are met again, 12 s after the load was first lowered"),
        ("recovering", {"size": 400, "held": False, "seconds": 5.0}, "back at 400: thresholds are still missed"),
        ("something-new", {"stage": 2, "why": "", "seconds": 1.23456}, "something new: stage 2, seconds 1.23"),
    ],
)  # fmt: skip
def test_an_event_is_a_sentence(event: str, fields: dict[str, Any], words: str) -> None:
    assert event_words(event, fields) == words


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (SearchSoFar(None, None, None), "nothing yet"),
        (SearchSoFar(500.0, None, None), "500 passed"),
        (SearchSoFar(None, 100.0, None), "100 failed"),
        (SearchSoFar(3200.0, 4600.0, (3100.0, 4500.0)),
         "3,200 passed, 4,600 failed; the limit is between 3,100 and 4,500 with 95 %"),
        (SearchSoFar(3.0, 4.0, (0.0, 4.0)), "3 passed, 4 failed; the limit is at most 4 with 95 %"),
    ],
)  # fmt: skip
def test_a_search_says_what_it_knows_so_far(known: SearchSoFar, words: str) -> None:
    assert known_words(known) == words
