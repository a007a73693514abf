"""Media events of TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.media.logged_media.audio import Audio
from rla_client.media.logged_media.histogram import Histogram
from rla_client.run.record.summary_writer import tbx_writer

if TYPE_CHECKING:
    from rla_client.media.logged_media.logged_value import LoggedValue
    from rla_client.run.record.run_logger import Logger


def send_media_event(logger: Logger, key: str, value: LoggedValue, step: int) -> None:
    """Send what TensorBoard shows of a value; nothing of one that it has no form for."""
    writer = tbx_writer(logger)
    if isinstance(value, Audio):
        samples = value.samples()
        if samples is not None:
            writer.add_audio(key, samples, step, sample_rate=value.sample_rate)
    elif isinstance(value, Histogram) and value.values is not None:
        if value.values.size:
            writer.add_histogram(key, value.values, step, bins=len(value.counts))
    elif isinstance(value, Histogram):
        middles = (value.edges[:-1] + value.edges[1:]) / 2  # values count as in the middle of their bin
        counts, edges = value.counts, value.edges
        sums = (counts.sum(), counts @ middles, counts @ middles**2)
        writer.add_histogram_raw(key, edges[0], edges[-1], *sums, edges[1:].tolist(), counts.tolist(), step)
