"""The base of media classes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

Where = Mapping[str, Any]  # `cover`, `add_timestamp`, `results_dir` of `recording_place.find_place`
PathLike = (str, os.PathLike)


class LoggedValue(ABC):
    """A value that becomes a file of the results: `results/<index>/<time-step>-<name>.<ending>`."""

    is_event: ClassVar[bool] = False  # it is also shown by TensorBoard, where that is an output

    @property
    def ending(self) -> str:
        """The ending of the one file that it becomes; empty where there are none or several."""
        return ""

    @abstractmethod
    def save(self, name: str, where: Where) -> str | None:
        """Have the file made.

        Args:
            name: below the results folder, without ending.
            where: other arguments of `find_place`.

        Returns:
            The path of the file, where one can be named.

        Raises:
            ArgumentError: what it holds cannot be kept.
            OSError: a file that it names cannot be read.
        """


def ending_of(data: object, own: str) -> str:
    """The ending of the file that data becomes: that of the file which it names, else `own`."""
    return os.path.splitext(os.fspath(data))[1] if isinstance(data, PathLike) else own


def to_array(values: Any) -> Any:  # noqa: ANN401 - of numpy, torch or a list
    """The array of numpy that an array, a list or a tensor is."""
    import numpy as np  # noqa: PLC0415 - not at import of the package

    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asarray(values)


def is_frame(value: object) -> bool:
    """Whether it is a DataFrame."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")
