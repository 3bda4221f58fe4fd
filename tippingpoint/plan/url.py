"""Addresses in plans: http(s)://host:port, without a path and without a login."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

PATTERN = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\])(:[0-9]{1,5})?$"


def checked_url(url: str) -> str:
    """Return an address; ValueError for anything else. A login is refused, as it would appear in journals."""
    try:
        if not re.fullmatch(PATTERN, url) or urlsplit(url).port == 0:
            raise ValueError
    except ValueError:
        raise ValueError("http(s)://host:port") from None
    return url


def listed_urls(given: object) -> object:
    """Return a list of addresses that was written as one text: with commas, as clients take it, perhaps in brackets.

    YAML reads `[http://[::1]:2379]` as no list, because of the brackets inside.
    """
    if not isinstance(given, str):
        return given
    text = given.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [part.strip().strip("\"'") for part in text.split(",") if part.strip()]


Url = Annotated[str, AfterValidator(checked_url), WithJsonSchema({"type": "string", "pattern": PATTERN})]
PprofUrls = Annotated[list[Url], BeforeValidator(listed_urls), Field(max_length=9)]
"""Where Go's pprof of a target's members answers, below /debug/pprof."""
