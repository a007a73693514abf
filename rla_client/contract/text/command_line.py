"""Common behaviour of command lines."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

from rla_client.contract.text.spelling import unknown
from rla_client.contract.text.terminal_text import fitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer


EXIT_USAGE = 2
_NO_CHOICE = re.compile(  # of typer's messages, in the words of its several releases
    r"Invalid value for '?(?P<option>-[^' ]+)'?.*?: (?:Value error, )?"
    r"'(?P<word>.*)' is not one of (?P<choices>'.+')\.?$"
)
_MEANT = "Did you mean"  # of typer's messages


def escape_unprintable(*streams: object) -> None:
    """Make text streams escape characters that their encoding lacks, since names may have any."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)  # what tests or an embedder put there has none
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def examples(*lines: str) -> str:
    """The end of a command's help; each line is a paragraph, so that none is joined to another."""
    return "\n\n".join(["Examples:", *lines])


def columns(stream: TextIO) -> int:
    """Width of lines: that of a terminal, unlimited in a pipe."""
    import shutil  # noqa: PLC0415 - not at import of the package

    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else sys.maxsize


def tell_error(message: object) -> None:
    """Print `error: …` on stderr, wrapped at words; lines of the message (`hint: …`) stay separate."""
    print(fitted(f"error: {message}", columns(sys.stderr)), file=sys.stderr)  # noqa: T201


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None, name: str | None = None) -> NoReturn:
    """Run a command and exit with its code; usage errors are printed like other errors.

    Args:
        app: the command.
        arguments: its words; None: those of this process.
        name: the command's name for users; None: that of this process.

    Raises:
        SystemExit: always, or whatever else the command raises.
    """
    try:
        code = app(arguments, prog_name=name, standalone_mode=False)
    except Exception as error:
        kind = type(error).__name__  # typer brings click's classes under names of its own
        if kind == "Abort":
            print("Aborted.", file=sys.stderr)  # noqa: T201
            sys.exit(1)
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if kind == "NoArgsIsHelpError":  # its help is printed already, or is the message
            print(message(), end="")  # noqa: T201
        else:
            path = getattr(getattr(error, "ctx", None), "command_path", "")
            meant = _as_value(error) or getattr(error, "possibilities", None) or []
            tell_error(_with_hint(message(), meant, path))
        sys.exit(getattr(error, "exit_code", EXIT_USAGE))
    sys.exit(code if isinstance(code, int) else 0)


def _as_value(error: Exception) -> list[str]:
    """Options of which an unknown option is a value: `--format latex` for `--latex`."""
    word = getattr(error, "option_name", None)
    command = getattr(getattr(error, "ctx", None), "command", None)
    if not isinstance(word, str) or not word.startswith("--") or command is None:
        return []
    options = [one for one in command.params if word[2:] in getattr(one.type, "choices", ())]
    return [f"{max(one.opts, key=len)} {word[2:]}" for one in options]


def _with_hint(message: str, options: Sequence[str], path: str) -> str:
    """What is wrong, without the names that look like it; these, or the help, as the hint."""
    choice = _NO_CHOICE.match(message)
    if choice is not None:
        known = choice["choices"].strip("'").split("', '")
        return str(unknown(choice["word"], known, f"{choice['option']} knows no {choice['word']!r}"))
    problem, meant, names = message.partition(_MEANT)
    options = [one for place, one in enumerate(options) if one != "--help" or not place]  # it resembles many
    if options:
        problem = problem.partition(" (")[0]
        names = f" {' or '.join(one if one.startswith('-') else repr(one) for one in options)}?"
    if meant or options:
        return f"{problem.strip().rstrip('.')}\nhint: did you mean{names.replace(', ', ' or ')}"
    return f"{problem}\nhint: {path} --help" if path else problem
