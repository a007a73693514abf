"""`dowel` under a name of earlier releases, which scripts import and snapshots name.

A file, as a finder is there only once all of the package is, and another thread may ask before.
"""

import sys

from rla_client.launcher import dowel
from rla_client.launcher.dowel import *  # noqa: F403 - what type checkers see

sys.modules[__name__] = dowel  # which `import` gives
