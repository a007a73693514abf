"""How an output stands towards its file. Pure: events in, the next state out.

An output takes records in one state only, READY, and there only while nothing failed a moment ago
(`error`, tried again after a rest) and no other file took its name since the last commit (`moved`: the commit
first notes where the output continues in it). The others:

* NEW: the file has yet to be opened, cut to what is durable, or made.
* WIDENING: the next record has a column that the table lacks; it waits for a rewrite.
* REWRITING: a thread writes the wider table into a temp file.
* RENAMING: agent.db says that the temp file is the content from now on; it has yet to get its name.
* SUSPECT: a sync failed, or closing the file did. What was written since the last commit may be gone though
  it can still be read, so the durable part is copied into a new file.

::

                begun            too narrow            rewrite
      NEW -------------> READY -------------> WIDENING --------> REWRITING
       ^                  |  ^                    ^  rewrite failed  |
       |  started over    |  |  renamed           +------------------+
       +------------------+  +-------- RENAMING <------- rewritten --+
       |
       | restored         suspected (a sync failed)
      SUSPECT <---------- NEW, READY, WIDENING

`dirty` is not a state: the file holds bytes that no sync has covered, whatever comes next.
"""

from __future__ import annotations

from enum import Enum

from rla_agent.model.stream_states import ForbiddenEventError


class OutputState(Enum):
    """See above."""

    NEW = "new"
    READY = "ready"
    WIDENING = "widening"
    REWRITING = "rewriting"
    RENAMING = "renaming"
    SUSPECT = "suspect"


class OutputEvent(Enum):
    """What happens to an output."""

    BEGUN = "its file is open and holds what it should"
    STARTED_OVER = "its file was removed or emptied, or another one took its name"
    TOO_NARROW = "a record needs columns that the table lacks"
    REWRITE = "a rewrite has begun"
    REWRITE_FAILED = "it failed, or could not be stored"
    REWRITTEN = "it is stored in agent.db"
    RENAMED = "the temp file has its name"
    SUSPECTED = "a sync or a close failed"
    RESTORED = "its state is that of a commit again"


S, E = OutputState, OutputEvent
TRANSITIONS: dict[tuple[OutputState, OutputEvent], OutputState] = {
    (S.NEW, E.BEGUN): S.READY,
    (S.NEW, E.STARTED_OVER): S.NEW,
    (S.NEW, E.SUSPECTED): S.SUSPECT,
    (S.NEW, E.RESTORED): S.NEW,
    (S.READY, E.STARTED_OVER): S.NEW,
    (S.READY, E.TOO_NARROW): S.WIDENING,
    (S.READY, E.SUSPECTED): S.SUSPECT,
    (S.WIDENING, E.STARTED_OVER): S.NEW,
    (S.WIDENING, E.REWRITE): S.REWRITING,
    (S.WIDENING, E.SUSPECTED): S.SUSPECT,
    (S.REWRITING, E.REWRITE_FAILED): S.WIDENING,
    (S.REWRITING, E.REWRITTEN): S.RENAMING,
    (S.RENAMING, E.RENAMED): S.READY,
    (S.RENAMING, E.SUSPECTED): S.RENAMING,  # of the file that is about to be replaced
    (S.SUSPECT, E.BEGUN): S.SUSPECT,
    (S.SUSPECT, E.STARTED_OVER): S.NEW,
    (S.SUSPECT, E.SUSPECTED): S.SUSPECT,
    (S.SUSPECT, E.RESTORED): S.NEW,
}


def after(state: OutputState, event: OutputEvent) -> OutputState:
    """The next state.

    Raises:
        ForbiddenEventError: the event cannot happen in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        message = f"{event.name} in state {state.name}: {event.value}, though the output is {state.value!r}"
        raise ForbiddenEventError(message) from None
