"""Secrets of a run.

`Secrets` hides them wherever something about a run is written down: parameters, names of folders, command
lines, variables, text logs. The program itself keeps its true values. A value that was found secret by its
name or form and has at least MIN_VERBATIM_CHARS is also hidden wherever else it appears verbatim.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rla_client.code.hidden_text import HIDDEN, hide_in_command, hide_in_text, hide_in_values, is_secret_value
from rla_client.code.secret_names import ANY, secrecy
from rla_client.stream.param_values import plain_hyper_param

MIN_VERBATIM_CHARS = 8  # a shorter secret may be part of a harmless word
PLAIN_WORD_CHARS = 16  # a shorter text of lower-case letters may be a word such as `required`


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of one run. If `hides` is False, nothing is hidden.

    Attributes:
        values: texts that are hidden wherever they appear, the longest first.
        hides: AGENT.hide_secrets of the configuration.
    """

    values: tuple[str, ...] = ()
    hides: bool = True

    @classmethod
    def of(cls, parameters: Mapping[str, Any], *, hides: bool = True) -> Secrets:
        """The secrets in parameters, in this program's command line and in its environment."""
        if not hides:
            return cls(hides=False)
        found: set[str] = set()

        def note(value: str, level: int) -> None:
            word = value.isalpha() and value.islower() and len(value) < PLAIN_WORD_CHARS
            if len(value) >= MIN_VERBATIM_CHARS and value != HIDDEN and (level == ANY or not word):
                found.update(_spellings(value))

        hide_in_values(plain_hyper_param(parameters), (), note)
        hide_in_command(sys.orig_argv, note)
        hide_in_command(sys.argv, note)
        for name in list(os.environ):
            value = os.environ.get(name, "")  # other threads may remove variables
            level = secrecy(name)
            if is_secret_value(level, value) and not os.path.isabs(value):
                note(value, level)
        return cls(tuple(sorted(found, key=lambda value: (-len(value), value))))

    def verbatim(self, text: str) -> str:
        """Hide the known values in a text."""
        for value in self.values:
            if value in text:
                text = text.replace(value, HIDDEN)
        return text

    def text(self, text: str) -> str:
        """Hide the known values, and secrets in a known form."""
        return hide_in_text(self.verbatim(text)) if self.hides else text

    def command(self, arguments: Iterable[str]) -> list[str]:
        """A command line with its secrets hidden."""
        if not self.hides:
            return list(arguments)
        return [self.verbatim(argument) for argument in hide_in_command(arguments)]

    def value(self, name: str, value: object) -> object:
        """A parameter for display: the same object, or plain data with hidden secrets."""
        if not self.hides:
            return value
        plain = plain_hyper_param(value)
        shown = self._verbatim_in(hide_in_values(plain, tuple(name.split("."))))
        return value if shown == plain else shown

    def parameters(self, parameters: Mapping[Any, Any]) -> dict[Any, Any]:
        """Parameters for output, with hidden secrets."""
        return {name: self.value(str(name), value) for name, value in parameters.items()}

    def _verbatim_in(self, plain: object) -> object:
        if isinstance(plain, str):
            return self.verbatim(plain)
        if isinstance(plain, Mapping):
            return {self.verbatim(str(name)): self._verbatim_in(item) for name, item in plain.items()}
        return [self._verbatim_in(item) for item in plain] if isinstance(plain, list) else plain


def _spellings(value: str) -> Iterable[str]:
    """A secret and its spellings in JSON, a repr or a URL; also its long lines."""
    import json  # noqa: PLC0415 - only where there are secrets
    from urllib.parse import quote  # noqa: PLC0415

    yield from (value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), quote(value))
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        yield from (line for line in lines if len(line) >= PLAIN_WORD_CHARS and not line.startswith("-----"))
