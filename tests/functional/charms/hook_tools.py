"""Stands in for Juju's hook tools: each is this program under another name, and what they tell is one JSON file.

Run as `hook_tools.py STATE TOOL ARGUMENT...`. STATE holds config, leader, relations (id -> remote units), bags
("ID/who" -> entries), secrets (id -> content), address, status, action (its parameters) and results; `calls` is every
call that was made, in order.
"""

from __future__ import annotations

import json
import sys

TYPE_CHECKING = False  # as of typing, which is not imported
if TYPE_CHECKING:
    from typing import Any


def options(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """The plain arguments, and the options of those tools."""
    plain: list[str] = []
    found: dict[str, str] = {}
    taking = {"-r": "relation", "--file": "file", "--log-level": "level", "-l": "level"}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            plain += rest
        elif argument in taking:
            found[taking[argument]] = next(rest)
        elif argument.startswith("--"):
            name, _, value = argument[2:].partition("=")
            found[name] = value
        else:
            plain.append(argument)
    return plain, found


def answer(state: dict[str, Any], tool: str, plain: list[str], given: dict[str, str]) -> Any:
    relation = given.get("relation", "").rpartition(":")[2]
    match tool:
        case "config-get":
            return state["config"]
        case "is-leader":
            return state["leader"]
        case "relation-ids":
            return [key for key in state["relations"] if key.startswith(f"{plain[0]}:")]
        case "relation-list":
            return next(units for key, units in state["relations"].items() if key.endswith(f":{relation}"))
        case "relation-get":
            who = plain[1].partition("/")[0] if "app" in given else plain[1]
            return state["bags"].get(f"{relation}/{who}", {})
        case "relation-set":
            who = state["unit"].partition("/")[0] if "app" in given else state["unit"]
            bag = state["bags"].setdefault(f"{relation}/{who}", {})
            bag.update(json.loads(sys.stdin.read()) if given.get("file") == "-" else pairs(plain))
        case "network-get":
            ours = state["address"]
            address = [{"value": ours, "address": ours, "cidr": f"{ours}/32", "hostname": ""}]
            interface = [{"mac-address": "", "interface-name": "eth0", "addresses": address}]
            return {
                "bind-addresses": interface,
                "egress-subnets": [f"{ours}/32"],
                "ingress-addresses": [ours],
            }
        case "status-get":
            return {"status": state["status"][0], "message": state["status"][1], "status-data": {}}
        case "status-set":
            if given.get("application") != "True":
                state["status"] = [*plain, ""][:2]
        case "action-get":
            return state["action"]
        case "action-set":
            state["results"].update(pairs(plain))
        case "action-fail":
            state["failed"] = " ".join(plain)
        case "goal-state":
            return {
                "units": {state["unit"]: {"status": "active", "since": "2026-11-23 08:00:00Z"}},
                "relations": {},
            }
        case "opened-ports":
            return []
        case "secret-get":
            name = plain[0].rpartition("/")[2].removeprefix("secret:") if plain else ""
            if name not in state["secrets"]:
                sys.exit(f'ERROR secret "{name}" not found')
            return state["secrets"][name]
        case "juju-log":
            state["log"].append([given.get("level", "INFO"), " ".join(plain)])
        case "juju-reboot" | "action-log" | "application-version-set" | "open-port" | "close-port":
            pass
        case _:
            sys.exit(f"hook_tools.py: {tool}: not known here")
    return None


def pairs(plain: list[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in plain)


def main() -> None:
    name, tool = sys.argv[1:3]
    with open(name) as file:
        state = json.load(file)
    plain, given = options(sys.argv[3:])
    state["calls"].append(sys.argv[2:])
    told = answer(state, tool, plain, given)
    with open(name, "w") as file:
        json.dump(state, file)
    if told is not None:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
