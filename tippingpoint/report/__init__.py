"""Writes reports and comparisons as HTML, Markdown, JSON and JUnit, each from one document (document.py).

The modules that render a format, or build a comparison or a trend, are imported on demand, because a run needs only one
page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.report.document import build_document

if TYPE_CHECKING:
    from tippingpoint.compare.comparison import Comparison
    from tippingpoint.compare.trend.history import Trend

RunFormat = Literal["html", "md", "json", "junit"]
ComparisonFormat = Literal["html", "md", "json"]


def write_report(analysis: Analysis, format: RunFormat) -> str:
    """Write the report of a run: an HTML page, Markdown, the document itself as JSON, or JUnit XML."""
    return render_report(build_document(analysis), format)


def render_report(document: dict[str, Any], format: RunFormat) -> str:
    """Render a run's document (document.build_document) in one format, for callers that want several."""
    match format:
        case "html":
            return _page(document)
        case "md":
            from tippingpoint.report.formats.markdown import render_run

            return render_run(document)
        case "json":
            return _json(document)
        case "junit":
            from tippingpoint.report.formats.junit import render_junit

            return render_junit(document)


def write_comparison(comparison: Comparison, format: ComparisonFormat) -> str:
    """Write a comparison as an HTML page, Markdown or JSON."""
    from tippingpoint.report.comparison import build_comparison
    from tippingpoint.report.formats.comparison_markdown import render_comparison

    return _write(build_comparison(comparison), render_comparison, format)


def write_trend(trend: Trend, format: ComparisonFormat) -> str:
    """Write a trend as an HTML page, Markdown or JSON."""
    from tippingpoint.report.formats.trend_markdown import render_trend
    from tippingpoint.report.trend import build_trend

    return _write(build_trend(trend), render_trend, format)


def _write(
    document: dict[str, Any], as_markdown: Callable[[dict[str, Any]], str], format: ComparisonFormat
) -> str:
    match format:
        case "html":
            return _page(document)
        case "md":
            return as_markdown(document)
        case "json":
            return _json(document)


def _page(document: dict[str, Any]) -> str:
    from tippingpoint.report.formats.html import render_html

    return render_html(document)


def _json(document: dict[str, Any]) -> str:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"
