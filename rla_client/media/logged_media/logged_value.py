"""The base class of media that `log` accepts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

Where = Mapping[str, Any]  # `cover`, `add_timestamp`, `results_dir` of `recording_place.find_place`
PathLike = (str, os.PathLike)


class LoggedValue(ABC):
    """A value that becomes a file of the results: `results/<index>/<time-step>-<name>.<ending>`."""

    is_event: ClassVar[bool] = False  # TensorBoard shows it too, if that is an output

    @property
    def ending(self) -> str:
        """The extension of the file that it becomes; empty if it becomes no file or several."""
        return ""

    @abstractmethod
    def save(self, name: str, where: Where) -> str | None:
        """Make the file, or have the agent make it.

        Args:
            name: below the results folder, without extension.
            where: other arguments of `find_place`.

        Returns:
            The path of the file, if it is known.

        Raises:
            ArgumentError: the content is invalid.
            OSError: a file that the value names cannot be read.
        """


def ending_of(data: object, own: str) -> str:
    """The extension of the file that `data` names, or else `own`."""
    return os.path.splitext(os.fspath(data))[1] if isinstance(data, PathLike) else own


def to_array(values: Any) -> Any:  # noqa: ANN401 - of numpy, torch or a list
    """An array, a list or a tensor as an array of numpy."""
    import numpy as np  # noqa: PLC0415 - not at import of the package

    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asarray(values)


def is_frame(value: object) -> bool:
    """Whether a value is a DataFrame."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")
