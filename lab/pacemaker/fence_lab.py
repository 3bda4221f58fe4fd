"""The fencing device of a Pacemaker lab: Pacemaker's fencer runs it as `fence_lab`, and it asks the lab.

It reads `name=value` lines from standard input, as fence agents do. `off` and `reboot` are a line of JSON on the lab's
socket; the answer says whether the node was dead. The socket's path is in TIPPINGPOINT_FENCE_SOCKET.
"""

from __future__ import annotations

import json
import os
import socket
import sys

_WITHIN_S = 60.0
_METADATA = """<?xml version="1.0"?>
<resource-agent name="fence_lab" shortdesc="asks the lab">
<longdesc>Kills a node of a lab.</longdesc>
<parameters>
<parameter name="action"><content type="string" default="reboot"/></parameter>
<parameter name="port" required="0"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/>
<action name="monitor"/><action name="list"/><action name="metadata"/></actions>
</resource-agent>
"""


def main() -> int:
    """Do what is asked for on standard input; returns the exit code, 0 when it is done."""
    asked = dict(line.rstrip("\n").split("=", 1) for line in sys.stdin if "=" in line)
    action = asked.get("action") or asked.get("option") or "reboot"
    if action == "metadata":
        print(_METADATA, end="")
        return 0
    if action not in ("off", "reboot"):
        return 0
    with socket.socket(socket.AF_UNIX) as lab:
        lab.settimeout(_WITHIN_S)
        lab.connect(os.environ["TIPPINGPOINT_FENCE_SOCKET"])
        lab.sendall(json.dumps({"action": action, "node": asked.get("port", "")}).encode() + b"\n")
        answer = lab.makefile().readline()
    return 0 if json.loads(answer).get("ok") else 1


if __name__ == "__main__":
    sys.exit(main())
