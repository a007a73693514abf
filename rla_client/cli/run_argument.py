"""Run argument before other words of a command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rla_client.cli.selection import Selection
from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    from rla_client.database.database import Database
    from rla_client.database.records.record import Record


def run_first(database: Database, chosen: Selection, words: list[str]) -> tuple[list[Record], list[str]]:
    """The chosen runs, and the remaining words: without options the first word is the run."""
    if not chosen.several and not words:
        raise ArgumentError("say which run: RUN, --run, --tag, --state, --where, --since, --commit, --limit")
    if not chosen.several:
        chosen, words = replace(chosen, named=(words[0],)), words[1:]
    return chosen.some(database, one_each=True), words
