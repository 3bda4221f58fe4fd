"""Templates of pages, which are compiled once and kept, as Python keeps its modules.

To compile a large template takes ten times as long as to render it, and each command is a process of its own. What a
filter of ours makes of a constant would be kept too, and outlive a change of the filter: no template has that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket


def template_environment(package: str) -> Environment:
    """Return what renders the templates of a package. They escape HTML, and refuse a name that is not there."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_BesideTemplates(),
    )


class _BesideTemplates(BytecodeCache):
    """Keeps compiled templates in `__pycache__` beside them, where Python would keep a module.

    Without the right to write there, or when Python keeps no bytecode, templates are compiled each time.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        assert filename is not None, "a template of a package is a file"
        return str(Path(cache_from_source(filename)).with_suffix(".jinja"))

    def get_source_checksum(self, source: str) -> str:
        # Another release of Jinja may compile the same template to something else.
        return hashlib.sha256(f"{version('jinja2')}\0{source}".encode()).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        unusable = (OSError, EOFError, pickle.UnpicklingError)
        with contextlib.suppress(*unusable), open(bucket.key, "rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        kept = Path(bucket.key)
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            written, name = tempfile.mkstemp(dir=kept.parent, prefix=f"{kept.name}.")
            try:
                with open(written, "wb") as file:
                    bucket.write_bytecode(file)
                os.chmod(name, 0o644)
                os.replace(name, kept)
            except BaseException:
                os.unlink(name)
                raise
