"""Templates of pages, which are compiled once and cached, as Python caches its modules.

Compiling a large template takes ten times as long as rendering it, and each command is a process of its own. The result
of one of our filters for a constant would be cached too, and outlive a change of the filter: no template contains that.
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
    """Return the environment that renders the templates of a package. It escapes HTML, and refuses undefined names."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_BesideTemplates(),
    )


class _BesideTemplates(BytecodeCache):
    """Caches compiled templates in `__pycache__` beside them, where Python would cache a module.

    Without the right to write there, or when Python caches no bytecode, templates are compiled each time.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        assert filename is not None, "a template of a package is a file"
        return str(Path(cache_from_source(filename)).with_suffix(".jinja"))

    def get_source_checksum(self, source: str) -> str:
        # Another release of Jinja may compile the same template differently.
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
