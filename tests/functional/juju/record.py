"""Records anew what a real controller replies to a recording's requests: python -m tests.functional.juju.record.

It takes the name of a controller in the juju client's store (JUJU_DATA) and the name of a recording, replays its
requests in a model of its own, and writes requests and replies, one pair a line, without values of that controller.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from lab.juju.replay import Stage
from tests.functional.juju.test_juju_contract import CHARMS, DATA
from tippingpoint.targets.juju.api.access import from_store


def main(controller: str, recording: str) -> None:
    """Replay a recording against a controller, and overwrite its replies."""
    store = Path(os.environ.get("JUJU_DATA") or "~/.local/share/juju").expanduser()
    file = DATA / f"{recording}.json"
    pairs = json.loads(file.read_text())
    with Stage(from_store(controller, store), CHARMS[recording]) as stage:
        replied = [
            {key: pair[key] for key in pair if key != "reply"} | {"reply": stage.replay(pair)}
            for pair in pairs
        ]
    lines = ",\n".join(json.dumps(pair) for pair in replied)
    file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
