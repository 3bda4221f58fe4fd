"""The program: quiet from its first instant, so that an early Ctrl-C is not a traceback out of an import."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tippingpoint.cli.program import main as command_line

    command_line()


if __name__ == "__main__":
    main()
