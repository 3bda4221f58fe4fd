"""The program's entry point. It handles Ctrl-C before it imports anything, so that this shows no traceback."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Matrices are small here. numpy would start a thread for each core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tippingpoint.cli.streams import repair_streams
    from tippingpoint.util.process import protect

    repair_streams()
    protect()
    from tippingpoint.cli.program import main as command_line

    command_line()


if __name__ == "__main__":
    main()
