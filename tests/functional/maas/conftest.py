"""An option for the contract with a real region."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--maas",
        metavar="CREDENTIALS",
        help="hold the contract of test_maas_contract.py with a real region: a file with url, api_key and perhaps ca",
    )
