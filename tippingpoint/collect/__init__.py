"""The work of metrics-collector: it stores what units report of their runs, and makes reports."""

WORSE = 10
"""Exit code of a comparison that found a regression; the command line's 1 would look like a crash of Python."""
