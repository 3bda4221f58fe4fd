"""Exit codes of our programs."""

from __future__ import annotations

MET = 0
"""All thresholds are met, or the command is done."""
MISSED = 1
"""A threshold is missed, or one with `abort` has ended the run. Or a compared run is worse than the baseline, or a
figure got worse in a trend."""
BAD_INPUT = 2
"""The input is refused: a plan, an option, a file. One line names the field, the value and what would be accepted. Or
the output could not be written; a reader that is gone (`| head`) changes no code."""
TARGET_FAILED = 3
"""The target cannot be reached or refuses the login, or nothing could be gathered from a Prometheus."""
WITHHELD = 4
"""The verdict is withheld: the load was not tried as planned, for example because the generator was too busy."""
CRASHED = 70
"""The program has a defect and could not go on. One line says where the traceback is: a file that only you can read.
The number is `EX_SOFTWARE` of sysexits(3)."""
INTERRUPTED = 130
"""The command was ended by Ctrl-C: 128 + SIGINT, as in shells."""
