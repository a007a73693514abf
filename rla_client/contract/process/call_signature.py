"""Signatures with annotations that cannot be evaluated."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature; an annotation with a name that only type checkers import stays a reference.

    Since Python 3.14 annotations are evaluated on access.

    Raises:
        TypeError, ValueError: as `inspect.signature`.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format  # noqa: PLC0415 - there from 3.14 on

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
