"""Reader of archive_tester entries.

An entry is our JSON or the original's pickle.
"""

from __future__ import annotations

from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.run.state.safe_pickle import Placeholder, read_pickle, to_plain


def read_archive(paths: tuple[str, ...]) -> dict[str, Any] | None:
    """The archive_tester entry as plain data: our JSON, else the original's pickle.

    Keys: hyper_param, hyper_param_record (list of `key=value`), custom_data, record_date, info,
    task_table_name, data_root, and further ones of the entry. Passwords are left out.

    Raises:
        BrokenFileError: the file is broken.
        OSError: it cannot be opened.
    """
    for path in sorted(paths):
        if path.endswith(".json"):
            try:
                found = parse_json(read_small(path))
            except BrokenFileError:
                raise
            except ValueError as error:
                raise BrokenFileError(path, f"no valid JSON ({error})") from error
            return found if isinstance(found, dict) else None
    for path in paths:
        if path.endswith(".pkl"):
            return _old_archive(path)
    return None


def _old_archive(path: str) -> dict[str, Any]:
    content = read_pickle(path)
    if not isinstance(content, Placeholder):
        raise BrokenFileError(path, "it is not an archived manager of RLA")
    try:
        found = {str(key): to_plain(value) for key, value in content.state.items()}
    except ValueError as error:
        raise BrokenFileError(path, str(error)) from error
    found.setdefault("task_table_name", found.get("task_name"))
    found.setdefault("data_root", found.get("root"))
    remote = (found.get("private_config") or {}).get("REMOTE_SETTING")
    if isinstance(remote, dict):
        remote.pop("password", None)
    return found
