"""How to reach a target, read from the secret that an operator gives to a charm.

A target's package defines it as `SECRET` in its module `secret`; without it no charm can reach the target. Data of
relations is converted into the same form, so that both lead to a plan's target and its files in one way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.packages import kinds, module_of
from tippingpoint.util.secret_keys import Keys

S = TypeVar("S", bound=TargetSection)

PLACE = "{credentials}"
"""Placeholder, in the fields of a plan's target, for the directory of its files."""


@dataclass(frozen=True)
class Reached:
    """A target's address and credentials, as fields of a plan and files."""

    fields: dict[str, Any]
    """Fields of a plan's target except its kind. PLACE in a text stands for the directory of the files."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Content of the files that `fields` name, by file name."""
    address: str = ""
    """The target's address, for people; empty if it is not known yet."""
    danger: str = ""
    """What is dangerous about this access, for the status of a unit; empty if nothing is."""


class Secret(ABC, Generic[S]):
    """The format of secrets for one kind of target. The methods' messages contain nothing of a secret's content."""

    ways: ClassVar[tuple[Keys, ...]]
    """The possible sets of keys of a secret."""
    example: ClassVar[str]
    """An example of its content, as for `juju add-secret NAME`."""
    names: ClassVar[Mapping[str, str]] = {}
    """Names that errors of `read` use, and the secret's keys for them: "client_key" is "client-key"."""

    @abstractmethod
    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        """Convert a secret's content, with the keys of one of `ways`, for this many units.

        UserError, whose field is one of the keys, if the content is invalid.
        """

    @abstractmethod
    def read(self, section: S, files: Mapping[str, Path]) -> None:
        """Check that a run could use `section` and its files; UserError if not.

        `files` has the path of each file by name. The files are in memory, not in one directory.
        """


def secret_of(kind: str) -> Secret[Any] | None:
    """Return the format of secrets for this kind of target; None if no charm can reach it."""
    try:
        return module_of(kind, "secret").SECRET
    except (LookupError, AttributeError, UserError):
        return None


def kinds_by_secret() -> list[str]:
    """Return the kinds of target that a charm can reach."""
    return [kind for kind in kinds() if secret_of(kind) is not None]
