"""The account that this process runs under."""

from __future__ import annotations

from pathlib import Path

NO_HOME = Path("/nonexistent")  # home in passwd of users who have none


def user_home() -> Path:
    """The user's home, or a name that leads nowhere: a container's uid may have none, and no HOME."""
    try:
        return Path.home()
    except RuntimeError:
        return NO_HOME


def user_name() -> str:
    """The user's name in the environment or in passwd; empty where neither has one, as in some containers."""
    import getpass  # noqa: PLC0415 - not at import of the package

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
