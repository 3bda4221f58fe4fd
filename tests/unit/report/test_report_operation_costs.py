"""What one operation takes of the target, in every format."""

from __future__ import annotations

import json

from tests.unit.made.sliced_runs import counts, sliced_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.report.document import build_document
from tippingpoint.report.formats.terminal import render_report
from tippingpoint.report.sections.totals import build_totals
from tippingpoint.rundir.machine import Used
from tippingpoint.rundir.results import RunData

SENTENCE = "CPU: 120 µs for each extend (95 %: "


def lab_run(*, seconds: int | None = None) -> RunData:
    """A run on a lab without a Prometheus: the kernel's CPU time of the target is known for its first seconds."""
    run = sliced_run()
    run.resources = None
    found = counts()
    for second, (extends, claims) in enumerate(zip(found["extend"], found["claim"], strict=True)):
        if seconds is None or second < seconds:
            used = float(0.05 + 120e-6 * extends + 3e-4 * claims)
            run.machine.append(
                Used(
                    t=second + 1.0,
                    seconds=1.0,
                    cpus=1,
                    busy=1.0,
                    ours=0.0,
                    target=used,
                    steal=0.0,
                    waited=None,
                    stalled={},
                )
            )
    return run


def test_a_lab_without_a_prometheus_shows_the_cost_in_every_format() -> None:
    # given a run whose only source is the CPU time that the kernel counts
    analysis = analyse(lab_run())
    # then the document has it beside, and not inside, what a Prometheus gathered
    document = json.loads(write_report(analysis, "json"))
    assert document["resources"] is None
    assert [(cost["operation"], cost["words"]) for cost in document["operation_costs"]] == [
        ("extend", "120 µs"),
        ("claim", "300 µs"),
    ]
    # and so have the Markdown, the terminal and the page
    assert f"- {SENTENCE}" in write_report(analysis, "md")
    terminal = render_report(build_document(analysis), build_totals(analysis.run), 120)
    assert any(line.plain.startswith(f"- {SENTENCE}") for line in terminal)
    page = write_report(analysis, "html")
    assert "<h2>Resource cost of one operation</h2>" in page
    assert page.count("120 µs</td>") >= 1


def test_what_is_not_shown_is_listed_once_with_the_reason() -> None:
    # given the same run, of which only a few seconds are known
    analysis = analyse(lab_run(seconds=5))
    (why,) = json.loads(write_report(analysis, "json"))["no_operation_costs"]
    # then the reports have no such section, and say why
    for form, words in (
        ("md", f"- cost of one operation: {why}"),
        ("html", f"The cost of one operation is not known: {why}."),
    ):
        report = write_report(analysis, form)
        assert report.count(words) == 1
        assert "Resource cost of one operation" not in report
