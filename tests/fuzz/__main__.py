"""Tries damaged samples on everything that reads what a hostile or damaged side sends.

    python -m tests.fuzz                       # until it is interrupted
    python -m tests.fuzz --seconds 3600        # an hour
    python -m tests.fuzz --only plan --seed 17 # one case again

A case is one surface and one seed. Cases run in a child process, which has 2 GB of memory and 10 s of CPU time for
each. A failure is anything else than an answer or a refusal in a line: it is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
import traceback
from random import Random
from types import FrameType

from tests.fuzz.surfaces import REFUSALS, SURFACES, Surface

MEMORY = 2 << 30
CASE_WITHIN = 10.0
"""Seconds of CPU time that a case may take: other programs on the machine make no case fail."""
WAITS_WITHIN = 600.0
"""Seconds that a case may take if it waits."""
GROWTH = 200 << 20
"""Bytes that a child's memory may grow by over its cases."""
CASES = 300
"""Cases of one child."""


class Hang(BaseException):
    """Raised in a case that takes too long."""


def _hangs(number: int, frame: FrameType | None) -> None:
    raise Hang


def try_case(surface: Surface, seed: int) -> str:
    """Try one case; returns what is wrong, or an empty text."""
    chance = Random(f"{surface.name} {seed}")
    samples = surface.samples()
    data = surface.damage(chance.choice(samples), chance, samples)
    signal.signal(signal.SIGALRM, _hangs)
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, CASE_WITHIN)
    signal.setitimer(signal.ITIMER_REAL, WAITS_WITHIN)
    try:
        surface.read(data, chance)
    except REFUSALS as refusal:
        return "" if len(str(refusal)) < 20_000 else f"a refusal of {len(str(refusal))} characters"
    except Hang:
        return (
            f"no end within {CASE_WITHIN:g} s of CPU time, or {WAITS_WITHIN:g} s: "
            + traceback.format_exc()[-1500:]
        )
    except BaseException:
        return traceback.format_exc()[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _child(surface: Surface, first: int, count: int, out: int) -> None:
    """Try cases one after the other, and write which one and what was wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = 0
    for seed in range(first, first + count):
        os.write(out, f"{seed}\n".encode())
        if wrong := try_case(surface, seed):
            print(
                f"\n{surface.name} {seed}: python -m tests.fuzz --only {surface.name} --seed {seed}\n{wrong}",
                flush=True,
            )
            os.write(out, b"!\n")
        if seed == first + count // 3:
            before = _resident()
    if before and _resident() - before > GROWTH:
        print(f"\n{surface.name} {first}..: grew by {(_resident() - before) >> 20} MB", flush=True)
        os.write(out, b"!\n")
    os._exit(0)


def try_cases(surface: Surface, first: int, count: int) -> int:
    """Try cases in a child; returns how many failed. One that ends the child is one, and ends them."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _child(surface, first, count, write)
        finally:
            os._exit(70)
    os.close(write)
    with open(read) as lines:
        told = lines.read().split()
    _, status = os.waitpid(child, 0)
    failed = told.count("!")
    if status != 0:
        last = next((line for line in reversed(told) if line != "!"), str(first))
        print(
            f"\n{surface.name} {last}: the child ended with {os.waitstatus_to_exitcode(status)}", flush=True
        )
        failed += 1
    return failed


def main() -> int:
    """Run what the options ask for; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="how long; by default until interrupted"
    )
    parser.add_argument("--seed", type=int, help="one case")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--only", choices=[each.name for each in SURFACES], action="append", help="a surface")
    options = parser.parse_args()
    surfaces = [each for each in SURFACES if not options.only or each.name in options.only]
    if options.seed is not None:
        return int(any(try_cases(each, options.seed, 1) for each in surfaces))
    failed = tried = 0
    first, end = options.first, time.monotonic() + options.seconds
    try:
        while time.monotonic() < end:
            for surface in surfaces:
                if time.monotonic() >= end:
                    break
                count = CASES // 10 if surface.name in ("run-directory", "prometheus") else CASES
                failed += try_cases(surface, first, count)
                tried += count
            first += CASES
    except KeyboardInterrupt:
        pass
    print(f"{tried} cases of {len(surfaces)} surfaces, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
