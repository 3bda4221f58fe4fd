"""The keys that one worker knows to exist, which of them are hot, and how large their values are."""

from __future__ import annotations

import math
import os
import random

from tippingpoint.plan.store import MAX_BYTES

_P99 = 2.326
"""The 99th percentile of a normal distribution, in standard deviations."""
_SIZES = 4096
"""How many sizes are drawn in advance."""


class Key:
    """A key of one worker."""

    __slots__ = ("gone", "name", "place", "prefix", "revision")

    def __init__(self, name: bytes, prefix: int) -> None:
        self.name = name
        self.prefix = prefix
        """The number of its prefix among the worker's."""
        self.revision = 0
        """The revision of its last change that was acknowledged or read."""
        self.gone = False
        """Whether we deleted it, or requested that: nobody may rely on it any more."""
        self.place = -1
        """Its place among the existing keys."""


class Keys:
    """The existing keys. Hot ones are the first of them."""

    def __init__(
        self, prefixes: list[bytes], hot_keys: float, hot_share: float, chance: random.Random
    ) -> None:
        self.prefixes = prefixes
        self._hot_keys = hot_keys
        self._hot_share = hot_share
        self._chance = chance
        self._there: list[Key] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._there)

    def fresh(self) -> Key:
        """Return a key that was never used; prefixes take turns."""
        prefix = self._number % len(self.prefixes)
        key = Key(b"%s%010d" % (self.prefixes[prefix], self._number), prefix)
        self._number += 1
        return key

    def add(self, key: Key, revision: int) -> None:
        """Add a key that now exists, and was last changed at a revision."""
        key.revision = revision
        key.gone = False
        if key.place < 0:
            key.place = len(self._there)
            self._there.append(key)

    def remove(self, key: Key) -> None:
        """Remove a key that no longer exists."""
        key.gone = True
        last = self._there[-1]
        self._there[key.place] = last
        last.place = key.place
        self._there.pop()
        key.place = -1

    def any(self) -> Key | None:
        """Return a random key, hot ones more often; None if there is none."""
        there = self._there
        if not there:
            return None
        most = len(there)
        if self._hot_share and self._chance.random() < self._hot_share:
            most = max(1, math.ceil(most * self._hot_keys))
        return there[int(self._chance.random() * most)]

    def last(self) -> Key | None:
        """Return the key that was added last, or one added about then; None if there is none."""
        return self._there[-1] if self._there else None

    def all(self) -> list[Key]:
        """Return all existing keys."""
        return list(self._there)

    def forget(self) -> None:
        """Forget all keys; numbers continue."""
        for key in self._there:
            key.gone = True
            key.place = -1
        self._there.clear()


class Values:
    """Values of drawn sizes. They are cut from random bytes, which no store can compress."""

    def __init__(self, median: int, p99: int | None, chance: random.Random) -> None:
        spread = math.log(p99 / median) / _P99 if p99 is not None else 0.0
        self._sizes = [
            max(1, min(MAX_BYTES, round(median * math.exp(chance.gauss(0, spread))))) if spread else median
            for _ in range(_SIZES if spread else 1)
        ]
        self._pool = os.urandom(2 * max(self._sizes))
        self._next = 0
        self._chance = chance

    def any(self) -> bytes:
        """Return a value."""
        self._next = (self._next + 1) % len(self._sizes)
        size = self._sizes[self._next]
        begin = int(self._chance.random() * (len(self._pool) - size))
        return self._pool[begin : begin + size]
