"""A call with its first arguments bound."""

from __future__ import annotations

import sys
from functools import partial

from tippingpoint.util.bound import Bound


class Teller:
    """Something with a method, as the users of Bound are."""

    def tell(self, who: str, times: int, what: str, mark: str = ".") -> str:
        """Return what was told."""
        return f"{who}: {what * times}{mark}"


def test_the_bound_arguments_come_before_those_of_the_call() -> None:
    bound = Bound(Teller.tell, Teller(), "a", 2)
    assert bound("no") == "a: nono."
    assert bound("no", mark="!") == "a: nono!"


def test_it_is_smaller_than_a_partial_and_what_that_has() -> None:
    method = Teller().tell
    made = partial(method, "a", 2)
    parts = (made, made.args, made.keywords, method)
    assert sys.getsizeof(Bound(Teller.tell, Teller(), "a", 2)) * 3 < sum(map(sys.getsizeof, parts))
