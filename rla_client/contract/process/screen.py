"""Detection of a visible screen.

Without one, a window that the process opens would not be seen.
"""

from __future__ import annotations

import os
import sys


def has_screen() -> bool:
    """Whether a window would be seen: False over ssh and in scripts."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
