"""Renders the verdict as JUnit XML: one test per threshold, judged by its worst stage, and one for the run."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from tippingpoint.report import figures

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(document: dict[str, Any]) -> str:
    """Render one `testsuite`. A missed threshold is a failure; one that was not judged is skipped.

    The test `run` is an error if the verdict is withheld or failed. It is a failure if a load was not sustained
    although all thresholds were met. So a system shows a run as green if, and only if, it ends with exit code 0.
    """
    run, verdict = document["run"], document["verdict"]
    suite = ElementTree.Element("testsuite", name=_text(run["id"]))
    counts = {"failures": 0, "errors": 0, "skipped": 0}
    suite_name = f"tippingpoint.{_text(run['plan'] or run['title'])}"

    whole = ElementTree.SubElement(suite, "testcase", classname=suite_name, name="run")
    if verdict["outcome"] in ("withheld", "failed"):
        error = ElementTree.SubElement(
            whole, "error", type=verdict["outcome"], message=_text(verdict["sentence"])
        )
        error.text = _text("\n".join([verdict["sentence"], *verdict["reasons"], *document["notes"]]))
        counts["errors"] += 1
    elif verdict["outcome"] == "missed" and not any(e["met"] is False for e in document["thresholds"]):
        # No threshold was missed, but a load was not sustained.
        failure = ElementTree.SubElement(whole, "failure", type="held", message=_text(verdict["sentence"]))
        failure.text = _text("\n".join([verdict["sentence"], *verdict["reasons"]]))
        counts["failures"] += 1
    if run["seconds"] is not None:
        whole.set("time", f"{run['seconds']:.3f}")

    for entry in document["thresholds"]:
        sign = ">=" if entry["limit"] == "throughput" else "<="
        allowed = figures.measured(entry["allowed"], entry["limit"], entry.get("unit", ""))
        name = f"{entry['operation']} {figures.limit_name(entry['limit'])} {sign} {allowed}"
        case = ElementTree.SubElement(suite, "testcase", classname=suite_name, name=_text(name))
        if entry["met"] is False and verdict["outcome"] != "met":  # a search may miss one repeat in three
            failure = ElementTree.SubElement(
                case, "failure", type="threshold", message=_text(entry["sentence"])
            )
            failure.text = _text(entry["sentence"])
            counts["failures"] += 1
        elif entry["met"] is None:
            ElementTree.SubElement(case, "skipped", message=_text(entry["sentence"]))
            counts["skipped"] += 1
        else:
            ElementTree.SubElement(case, "system-out").text = _text(entry["sentence"])
    suite.set("tests", str(1 + len(document["thresholds"])))
    for name, count in counts.items():
        suite.set(name, str(count))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _text(value: str) -> str:
    """Replace characters that XML 1.0 cannot hold, not even escaped, by U+FFFD."""
    return _NOT_XML.sub("\ufffd", value)
