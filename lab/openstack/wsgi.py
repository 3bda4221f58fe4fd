"""What uwsgi serves of an OpenStack lab, under Debian's Python: one service, which is late while a file says so.

LAB_APPLICATION is MODULE:FUNCTION, which makes the application; LAB_DELAY a file with the seconds that it waits before
each answer, as a slow host would have it wait. There need be no file.
"""

import contextlib
import importlib
import os
import time
from pathlib import Path

_delay = Path(os.environ["LAB_DELAY"])
_module, _, _function = os.environ["LAB_APPLICATION"].partition(":")
_application = getattr(importlib.import_module(_module), _function)()
if _module.startswith("keystone."):
    # Keystone reads its policy in the first request that needs it, and denies what a second one asks meanwhile in
    # another thread: another administrator's request would be forbidden now and then.
    importlib.import_module("keystone.common.rbac_enforcer.enforcer").RBACEnforcer()._enforcer.load_rules()


def application(environ, start_response):
    """The service's answer, in time or late."""
    with contextlib.suppress(FileNotFoundError):
        time.sleep(float(_delay.read_text()))
    return _application(environ, start_response)
