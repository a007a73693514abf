"""dowel's `logger` on top of `rla_client.logger`.

The agent writes the outputs of an experiment. A user may add outputs, for other files or for programs
without an experiment; this process writes them at once. An output is any object with `types_accepted`,
`record`, `dump` and `close`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from rla_client import logger as rla_logger
from rla_client.contract.errors import ArgumentError
from rla_client.launcher.dowel.log_outputs import LogOutput, StdOutput, time_lead
from rla_client.launcher.dowel.table_input import Histogram, Prefixed, TabularInput, is_picture
from rla_client.stream.rare_warnings import warn_rarely

DEFAULT_X_AXIS = "TotalEnvSteps"


class DowelLogger(Prefixed):
    """Text with prefixes, rows, and outputs beside those of the experiment."""

    def __init__(self) -> None:
        super().__init__()
        self._pictures: dict[str, Any] = {}
        self._outputs: list[LogOutput] = []
        self._warned: dict[str, float] = {}
        self.x_axis = DEFAULT_X_AXIS

    def log(self, data: object) -> None:
        """Write text after time and prefixes, or add the values of a TabularInput to the next row."""
        prefix = "".join(self._prefixes)
        for output in self._outputs:
            if isinstance(data, output.types_accepted):
                self._have(output, partial(output.record, data, prefix=prefix))
        if not isinstance(data, TabularInput):
            lead = time_lead() + prefix
            echo = not self.has_output_type(StdOutput)
            rla_logger.get_current().log(data, echo=echo, lead=lead)
            return
        for key, value in data.as_dict.items():
            if is_picture(value):
                self._pictures[key] = value
            else:
                rla_logger.record_tabular(key, value)

    def dump_all(self, step: int | None = None) -> dict[str, Any]:
        """Write the row. Its time-step is the value of the x axis, else `step`."""
        at = rla_logger.getkvs().get(self.x_axis, step)
        if isinstance(at, (int, float)) and math.isfinite(at):
            rla_logger.set_time(at)
        if self._pictures:
            self._send_pictures()
        for output in self._outputs:
            self._have(output, partial(output.dump, step))
        return rla_logger.dump_tabular()

    def _send_pictures(self) -> None:
        pictures, self._pictures = self._pictures, {}
        if "tensorboard" not in rla_logger.get_current().sinks:
            return
        writer = rla_logger.get_tbx_writer()
        for key, value in pictures.items():
            if isinstance(value, Histogram):
                writer.add_histogram(key, value.values)
            else:
                writer.add_figure(key, value)

    def add_output(self, output: LogOutput) -> None:
        """Also write everything that is logged from now on to `output`.

        Raises:
            ArgumentError: it is a class, or has no `record` and `dump`.
        """
        fit = all(callable(getattr(output, name, None)) for name in ("record", "dump", "close"))
        if isinstance(output, type) or not fit:
            raise ArgumentError(f"add_output takes an output with record, dump and close; got {output!r}")
        self._outputs.append(output)

    def has_output_type(self, output_type: type) -> bool:
        """Whether an output of that type was added."""
        return any(isinstance(output, output_type) for output in self._outputs)

    def remove_output_type(self, output_type: type) -> None:
        """Close and remove added outputs of a type. The experiment's own outputs stay."""
        for output in [output for output in self._outputs if isinstance(output, output_type)]:
            self._outputs.remove(output)
            self._have(output, output.close)

    def remove_all(self) -> None:
        """Close and remove all added outputs. The experiment's own outputs stay."""
        self.remove_output_type(object)

    def reset_output(self, output: LogOutput) -> None:
        """Replace added outputs of its type by `output`."""
        self.remove_output_type(type(output))
        self.add_output(output)

    def dump_output_type(self, output_type: type, step: int | None = None) -> None:
        """Dump added outputs of a type."""
        for output in self._outputs:
            if isinstance(output, output_type):
                self._have(output, partial(output.dump, step))

    def _have(self, output: LogOutput, write: Callable[[], None]) -> None:
        """Call an output of the user; a disk error does not end the training."""
        try:
            write()
        except OSError as error:
            name = type(output).__name__
            warn_rarely(self._warned, name, "output %s lost what it was given: %s", name, error)

    def disable_warnings(self) -> None:
        """Do nothing: values without an output cause no warnings here, unlike in dowel."""

    def swap(self, contents: Contents) -> Contents:
        """Replace prefixes, pictures, outputs and x axis; return the former ones."""
        former = self._prefixes, self._pictures, self._outputs, self.x_axis
        self._prefixes, self._pictures, self._outputs, self.x_axis = contents
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        return "logger" if self is logger else (DowelLogger, ())


Contents: TypeAlias = tuple[list[str], dict[str, Any], list[LogOutput], str]

logger = DowelLogger()
