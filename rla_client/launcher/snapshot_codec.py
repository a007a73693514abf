"""`training_state` under a name of earlier releases, which scripts import and snapshots name.

A file, as a finder is there only once all of the package is, and another thread may ask before.
"""

import sys

from rla_client.launcher import training_state
from rla_client.launcher.training_state import *  # noqa: F403 - what type checkers see

sys.modules[__name__] = training_state  # which `import` gives
