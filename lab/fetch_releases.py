"""Lists releases, or fetches some beforehand.

python -m lab.fetch_releases                    # every target and suite, and what is here already
python -m lab.fetch_releases etcd               # of one target
python -m lab.fetch_releases etcd bookworm 3.6  # fetch these
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lab.arguments import releases_parser
from lab.control import LabError
from lab.releases.find import find, kept
from lab.releases.known import KNOWN, expected


def main(arguments: Sequence[str]) -> int:
    """List or fetch, and return the exit code."""
    options = releases_parser().parse_args(arguments)
    try:
        for name in options.releases:
            found = find(options.target, name)
            print(f"{found.label} is in {found.path}")
    except LabError as problem:
        print(problem, file=sys.stderr)
        return 2
    if not options.releases:
        for target in [options.target] if options.target else KNOWN:
            here = ", ".join(f"{release.version} ({release.origin})" for release in kept(target)) or "none"
            print(f"{target}: {expected(target)}\n  here already: {here}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
