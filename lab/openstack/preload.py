"""Imports what a service of an OpenStack lab needs, before uwsgi forks the processes that share it (see wsgi.py).

They import the rest themselves, and each makes an application of its own: nothing that is open is shared.
"""

import importlib
import os

_module = os.environ["LAB_APPLICATION"].partition(":")[0]
_LATER = {
    "glance.common.wsgi_app": (
        "glance.api.v2.router",
        "glance.db.sqlalchemy.api",
        "keystonemiddleware.auth_token",
    ),
}
"""What a service imports only when its application is made."""
for _name in (_module, *_LATER.get(_module, ())):
    importlib.import_module(_name)
