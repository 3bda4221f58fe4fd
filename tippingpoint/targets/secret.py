"""What a secret says of how a target is reached, as an operator gives it to a charm.

It is `SECRET` of the module `secret` in a target's package; a target without one cannot be reached by a charm. What a
relation says is brought into the same form, so that there is one way from there to a plan's target and its files.
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
"""Stands in the fields of a plan's target for the directory that its files will be in."""


@dataclass(frozen=True)
class Reached:
    """How a target is reached."""

    fields: dict[str, Any]
    """Fields of a plan's target, but for its kind; PLACE in a text stands for the directory with the files."""
    files: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Name and content of the files that `fields` name."""
    address: str = ""
    """Where that is, for people; empty where nobody can tell yet."""


class Secret(ABC, Generic[S]):
    """What a secret with access to a target has in it. Nothing of its content is in any message of these methods."""

    ways: ClassVar[tuple[Keys, ...]]
    """The keys of such a secret, of which there may be several kinds."""
    example: ClassVar[str]
    """Content of one, as `juju add-secret NAME` takes it."""
    names: ClassVar[Mapping[str, str]] = {}
    """What `read` calls something in its errors, and what a secret does: "client_key" is "client-key"."""

    @abstractmethod
    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        """What content with the keys of one of these ways means, for so many units.

        UserError, whose field is one of the keys, where it means nothing.
        """

    @abstractmethod
    def read(self, section: S, files: Mapping[str, Path]) -> None:
        """Read what `section` names as a run would, and drop it; UserError when that cannot be used.

        The files, by name, are in memory: none is beside another.
        """


def secret_of(kind: str) -> Secret[Any] | None:
    """What a secret says of targets of this kind; None where no charm can reach such."""
    try:
        return module_of(kind, "secret").SECRET
    except (LookupError, AttributeError, UserError):
        return None


def kinds_by_secret() -> list[str]:
    """The kinds of target that a charm can reach."""
    return [kind for kind in kinds() if secret_of(kind) is not None]
