# ruff: noqa: N999 - the name of the original
"""Imported in place of the original by processes that a script under `rla_client.compat` spawns.

`python -m rla_client.compat` puts this folder's parent into `sys.path`, which multiprocessing hands on.
Importing it serves the old names in the new process, and this module makes way for the one that does so.
"""

import importlib

from rla_client.compat.old_modules import install

install()
importlib.import_module(__name__)
