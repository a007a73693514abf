"""Search for the configuration file of a project."""

from __future__ import annotations

from pathlib import Path

from rla_client.contract.errors import DatabaseError

CONFIG_NAME = "rla_config.yaml"
DATA_FOLDER = "data"  # of the database, beside the configuration
LAUNCHER_FOLDER = ("data", "local")  # below the working folder, for launchers without a database
DATA_ROOT_VARIABLE = "RLA_DATA_ROOT"


def find_config(*starts: Path) -> Path | None:
    """The nearest rla_config.yaml in or above a folder; with several starts, that of the first one found."""
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / CONFIG_NAME).is_file():
                return folder / CONFIG_NAME
    return None


def require_config(*starts: Path) -> Path:
    """The file that `find_config` finds.

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
