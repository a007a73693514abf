"""Manager of an archived run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.contract.run_index import RunIndex
from rla_client.database.tree.items import Item
from rla_client.run.parameters.hyper_params import wrap
from rla_client.run.state.archive_reader import read_archive

if TYPE_CHECKING:
    from rla_client.manager import ExpManager


def archived_manager(item: Item) -> ExpManager:
    """A manager of the run that an archive_tester entry describes; its content is plain data.

    Args:
        item: the archive_tester entry.

    Raises:
        BrokenFileError: the entry is broken, or is no archived manager.
        OSError: the entry cannot be opened.
    """
    from rla_client.manager import ExpManager
    from rla_client.run.item import ItemFolders as Place
    from rla_client.run.resume.find_run import read_run

    content, index = read_archive(item.paths), RunIndex.parse(item.index)
    if content is None or index is None:
        raise BrokenFileError(item.paths[0], "it is not an archived manager")
    base = os.path.abspath(item.paths[0]).rpartition(".")[0]
    root = base.removesuffix(f"/{ARCHIVE_TESTER}/{item.table}/{item.index}")
    loaded: ExpManager = ExpManager.of_run(read_run(Place(root, item.table, index, index.opened), content))
    loaded.hyper_param = wrap(loaded.hyper_param)
    return loaded
