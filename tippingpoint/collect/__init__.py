"""What metrics-collector does: keep what units say of their runs, and make reports of it."""

WORSE = 10
"""Exit code of a comparison that found something worse: the command line's 1 is what a crash of Python gives too."""
