"""The Prometheus that the options of a command name."""

from __future__ import annotations

import argparse

from tippingpoint.errors import UserError
from tippingpoint.monitoring.prometheus import Prometheus


def prometheus_of(options: argparse.Namespace) -> Prometheus:
    """Return the Prometheus with its login; raises UserError for a wrong URL, half a login, or an unusable file."""
    if bool(options.username) != (options.password_file is not None):
        missing = "--password-file" if options.username else "--username"
        raise UserError(missing, "missing", "both --username and --password-file")
    if options.username and options.token_file is not None:
        raise UserError("--token-file", "given beside --username", "one login: either a token or a user name")
    return Prometheus(
        options.prometheus,
        ca=options.ca,
        username=options.username,
        password_file=options.password_file,
        token_file=options.token_file,
    )
