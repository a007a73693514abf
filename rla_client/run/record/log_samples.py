"""Samples into the stream of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rla_client.config.schema import SamplesConfig
from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import FrameKind
from rla_client.media.recording_target import recording_state, warn_once
from rla_client.media.row_media import media_file, safe_name, save_media
from rla_client.samples.sample_chunks import SampleChunks
from rla_client.stream.values import clean_text, to_plain

if TYPE_CHECKING:
    from rla_client.run.record.run_logger import Logger

MAX_PICTURES = 128  # of a call
_KIND = int(FrameKind.SAMPLES)


def log_samples(
    logger: Logger, samples: object, *, step: object, name: str, group: object, tokens: bool
) -> int:
    """Hand samples to the agent; see `rla_client.log_samples`.

    Returns:
        Number of rows written to the spool. Others are counted as lost, with a warning.
    """
    with logger.lock:
        outbox = logger.stream_outbox()
        if outbox is None:
            return 0
        taken = 0
        withheld: set[str] = set()
        said: list[tuple[str, str]] = []  # reasons and texts of warnings
        try:
            at = _step(logger.clock.get_time() if step is None else step)
            if logger.sample_chunks is None:
                logger.sample_chunks = SampleChunks(logger.sample_limits or SamplesConfig())
            now = time.time()
            pictures = _Pictures(name, at, logger.sample_chunks.picture_numbers)
            for chunk in logger.sample_chunks.chunks(
                samples, name=name, step=at, timestamp=now, group=group,
                withheld=None if tokens else withheld, pictures=pictures,
            ):  # fmt: skip
                if outbox.put(_KIND, chunk.payload, now):
                    taken += chunk.rows
            if pictures.left_out:
                told = f"{pictures.left_out} pictures of a call are left out, which keeps {MAX_PICTURES}"
                outbox.lose("pictures", clean_text(str(name)), told)
                said.append(("pictures", f"samples {name!r}: {told} (told once)"))
            said += map(_of_withheld, logger.sample_chunks.untold(withheld))
        except Exception as error:  # noqa: BLE001 - whatever the user's objects raise; logging never ends training
            told = str(error) if isinstance(error, ArgumentError) else f"{type(error).__name__}: {error}"
            outbox.lose("samples", clean_text(str(name)), clean_text(told))
            said.append((f"samples {told:.60}", f"samples {name!r} are not kept: {told}"))
        for reason, text in said:  # which raises where warnings are errors
            warn_once(reason, text)
    return taken


def _of_withheld(column: str) -> tuple[str, str]:
    text = (
        f"samples: column {clean_text(column)!r} is taken for token ids, masks or log-probabilities and left "
        "out; log_samples(…, tokens=True) keeps it (told once)"
    )
    return f"tokens {column}", text


def _step(step: object) -> int | float:
    plain = to_plain(step)
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise ArgumentError(f"step is a finite number; got {step!r}")
    return plain


class _Pictures:
    """Saves the pictures and other media of one call as results; a cell then names the file.

    Attributes:
        left_out: how many there were beyond MAX_PICTURES.
    """

    def __init__(self, name: str, step: float, numbers: Iterator[int]) -> None:
        self.left_out = 0
        self._name, self._step, self._numbers = safe_name(name), step, numbers
        self._saved = 0

    @staticmethod
    def is_one(value: object) -> bool:
        """See `Pictures`."""
        return media_file(value) is not None

    def refer(self, key: str, value: object) -> dict[str, Any] | None:
        """The kind and the file's path below the run's results, None beyond MAX_PICTURES; see `Refer`."""
        found = media_file(value)
        if found is None:
            return None
        kind, ending = found
        if self._saved >= MAX_PICTURES:
            self.left_out += 1
            return {kind: None}
        self._saved += 1
        last = f"{safe_name(key).replace('/', '_')}-{next(self._numbers)}"
        save_media(f"samples/{self._name}/{last}", value, step=self._step, folder=None)
        target = recording_state().target
        below = () if target is None else target.below
        return {kind: "/".join([*below, "samples", self._name, f"{self._step}-{last}{ending}"])}
