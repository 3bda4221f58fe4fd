"""Remembers which changes people know about, and why they accept them, in a file next to the runs."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.rundir.files import read_file, replace_file
from tippingpoint.rundir.manifest import RunId

FILE = "acknowledged.json"
_LARGEST = 1 << 20
"""Bytes."""


class Acknowledged(BaseModel):
    """The runs at which known changes begin, and the reasons that people gave."""

    format: int = 1
    runs: dict[RunId, str] = {}
    """The reason, by the id of the first run of the new level."""

    @classmethod
    def load(cls, directory: Path) -> Acknowledged:
        """Return what is acknowledged in a directory of runs; raises UserError if the file is unreadable."""
        path = directory / FILE
        try:
            return cls.model_validate_json(read_file(path, _LARGEST))
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        except (OSError, ValidationError) as problem:
            line = str(problem).splitlines()[0]
            raise UserError("acknowledged", str(path), f"a readable {FILE} ({line})") from None

    def save(self, directory: Path) -> None:
        """Replace the file in a directory of runs atomically."""
        replace_file(directory / FILE, self.model_dump_json(indent=2) + "\n")
