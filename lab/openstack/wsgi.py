"""A service of an OpenStack lab for uwsgi, under Debian's Python, which delays answers as a file says.

LAB_APPLICATION is MODULE:FUNCTION, which makes the application. LAB_DELAY is a file with the seconds to wait before
each answer, like a slow host. The file is optional.
"""

import contextlib
import importlib
import logging
import os
import threading
import time
from pathlib import Path

_delay = Path(os.environ["LAB_DELAY"])
_module, _, _function = os.environ["LAB_APPLICATION"].partition(":")
_application = getattr(importlib.import_module(_module), _function)()
# oslo.log gives Python's log a lock of eventlet's wherever that is loaded. Of the threads here, one that waits for such
# a lock cannot be woken by another, and never answers again, as when several meet in their first requests.
logging.threading, logging._lock = threading, threading.RLock()
if _module.startswith("keystone."):
    # Keystone reads its policy in the first request that needs it. Meanwhile it denies requests in other threads, so
    # an administrator's request would sometimes be forbidden.
    importlib.import_module("keystone.common.rbac_enforcer.enforcer").RBACEnforcer()._enforcer.load_rules()


def application(environ, start_response):
    """Return the service's answer, with the delay if there is one."""
    with contextlib.suppress(FileNotFoundError):
        time.sleep(float(_delay.read_text()))
    return _application(environ, start_response)
