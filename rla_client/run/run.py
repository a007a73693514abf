"""Open run in the training process.

A run is closed by `close`, by a later run of the same owner, or when the process ends (`process_end`).
`failure` decides the state of a run that an exception ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.agent.places import find_places
from rla_client.contract.spool.opening import Continuation, Earlier, Opening
from rla_client.contract.spool.protocol import REPLICATE_NOW, FrameKind, pack
from rla_client.run.failure import active_traceback, stop_at_work
from rla_client.run.process_end import end_with_worker, ended, install_hooks, open_runs
from rla_client.run.record.run_logger import ERROR, Logger
from rla_client.run.run_mode import RUN_VARIABLE, WRITER_VARIABLE
from rla_client.stream.outbox import Outbox
from rla_client.stream.values import text_of

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig


ASK_AGAIN_S = 0.1
ANSWER_S = 2.0  # for one request; then it is repeated
REASON_CHARS = 2000  # of the reason in run.json


class Run:
    """An open run: `logger` for its records, `close` for its end."""

    def __init__(self, logger: Logger, opening: Opening | None, settings: AgentConfig) -> None:
        self.logger = logger
        self.opening = opening
        self._settings = settings
        self.pid = os.getpid()
        self._closed = False
        self.at_close: list[Callable[[], None]] = []  # called once it has closed
        install_hooks()
        end_with_worker()
        open_runs.append(self)

    @property
    def outbox(self) -> Outbox | None:
        """The stream, None when nothing is stored (RLA_MODE=disabled, ranks above 0)."""
        return self.logger.outbox

    def mark(self, name: str, data: object) -> None:
        """Send the agent a fact about the run (plain data)."""
        if self.outbox is not None:
            self.outbox.put(FrameKind.MARK, pack([name, data]), time.time())

    def file(self, kind: str, path: str, content: bytes) -> None:
        """Have the agent store `content` durably as `path` in the item folder of `kind`."""
        if self.outbox is not None:
            self.outbox.file(kind, path, content)

    def go_on(self, **continues: Any) -> bool:  # noqa: ANN401 - plain data
        """Continue in a new stream at once instead of at the next record (see `Outbox.go_on`).

        Args:
            **continues: of the new opening's `Continuation`.

        Returns:
            False when the spool takes no new stream; the run continues as before.
        """
        if self.outbox is None or self.opening is None:
            return False
        before = self.opening.continues
        earlier = Earlier() if before is None else before.earlier
        return self.outbox.go_on(lambda old: Continuation(**continues, after=(old,), earlier=earlier))

    def replicate_now(self, *, wait: bool, timeout: float) -> bool:
        """Have the run replicated at once, instead of at the agent's next scan.

        The request is a mark in the stream, which the agent passes on with the next commit. Never raises
        because of the agent or the network.

        Args:
            wait: return when everything recorded or written so far is on the master. The agent checks
                that the whole item is there as it is here.
            timeout: seconds to wait at most.

        Returns:
            Without `wait` True. With it, whether all of the run's files are on the master; False at once
            where
                the run has no item or is not replicated.
        """
        outbox, opening = self.outbox, self.opening
        if outbox is None or opening is None or not opening.table or opening.master or opening.offline:
            return False
        deadline = time.monotonic() + timeout
        self.mark(REPLICATE_NOW, {})
        outbox.push()
        if not wait:
            return True
        if not outbox.flush(timeout, media=True):
            return False
        from rla_client.contract.agent.agent_connection import ask  # noqa: PLC0415 - not at import of the package

        header = {"root": opening.root, "item": f"{opening.table}/{opening.index}"}
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            answer = ask(find_places().control_socket, header, min(ANSWER_S, left_s))
            if answer is not None:
                found = answer.get("replicated")
                if found is None or found:
                    return bool(found)
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic())))

    def close(self, state: str, reason: str, details: str = "") -> None:
        """End the run; does nothing the second time.

        Args:
            state: finished, interrupted or failed.
            reason: a line; cut to REASON_CHARS.
            details: for its log; default for a failed run: the traceback of the current exception.
        """
        if self._closed:
            return
        self._closed = True
        if self in open_runs:
            open_runs.remove(self)
        outbox = self.outbox
        if outbox is None:
            return
        if self.pid != os.getpid():
            outbox.release()  # a forked worker ends; the run itself continues
            return
        if state == "finished" and (by := stop_at_work(sys.exc_info()[1])) is not None:
            state, reason = "interrupted", f"told to stop by {by.name}"
        if os.environ.get(RUN_VARIABLE) and self.opening and self.opening.run in os.environ[RUN_VARIABLE]:
            del os.environ[RUN_VARIABLE]
            os.environ.pop(WRITER_VARIABLE, None)
        self.logger.finish_rows()
        try:
            details = details or (active_traceback() if state == "failed" else "")
            if details:
                self.logger.log(details, level=ERROR, echo=False)  # Python prints it itself
        finally:  # Ctrl-C while the traceback is made must not leave the run open
            outbox.close(state, self.logger.shown(text_of(reason))[:REASON_CHARS])
        for call in self.at_close:
            call()
        ended.append((outbox, self._settings.exit_wait_s if shares_our_life() else 0.0))
