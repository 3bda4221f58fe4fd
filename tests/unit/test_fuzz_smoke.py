"""The fuzzer of tests/fuzz, for a few cases of each surface: the same on each machine."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tests.fuzz.surfaces import REFUSALS, SURFACES, Surface

CASES = 5


@pytest.mark.parametrize("surface", SURFACES, ids=lambda each: each.name)
def test_damaged_input_is_read_or_refused_in_a_line(surface: Surface) -> None:
    samples = surface.samples()
    for seed in range(CASES):
        chance = Random(f"{surface.name} {seed}")
        data = surface.damage(chance.choice(samples), chance, samples)
        with suppress(*REFUSALS):
            surface.read(data, chance)


@pytest.mark.parametrize("surface", SURFACES, ids=lambda each: each.name)
def test_the_samples_are_what_is_damaged(surface: Surface) -> None:
    """Without damage there is something to read, and the seed decides everything."""
    samples = surface.samples()
    assert samples
    ways = [Random(7), Random(7)]
    first, second = (surface.damage(samples[0], chance, samples) for chance in ways)
    assert first == second
