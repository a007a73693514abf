"""Search for the configuration file of a project."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.errors import DatabaseError

CONFIG_NAME = "rla_config.yaml"
DATA_FOLDER = "data"  # of the database, beside the configuration
LAUNCHER_FOLDER = ("data", "local")  # of launchers without a database, in the working folder
DATA_ROOT_VARIABLE = "RLA_DATA_ROOT"


def find_config(*starts: Path) -> Path | None:
    """The nearest rla_config.yaml in a folder or above it; of several folders, the first that has one."""
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / CONFIG_NAME).is_file():
                return folder / CONFIG_NAME
    return None


def require_config(*starts: Path) -> Path:
    """`find_config`, where there must be one.

    Raises:
        DatabaseError: there is none.
    """
    found = find_config(*starts)
    if found is None:
        places = " or ".join(map(str, starts))
        raise DatabaseError(
            f"no {CONFIG_NAME} in {places} or above; go to your project, or give --config FILE"
        )
    return found
