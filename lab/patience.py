"""How long a lab waits for what takes seconds on a machine that has nothing else to do."""

PATIENCE_S = 600.0
"""Only what hangs comes to this limit, and nothing on a machine that is slow and busy."""
