"""Command line `rla`.

Each command is a module of `commands` that registers itself on the app. Only the module of the given
command is imported; most commands work without pandas and numpy, so that `rla show` answers within 0.3 s.

Errors that the user can fix are printed as `error: …` on stderr, possibly with a line `hint: …`, and give
exit code 1; typer reports wrong options, with exit code 2. A reader that closes the pipe ends the command
quietly. Completions for the shell are printed within `TIME_S` or not at all.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import MutableMapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from typing import Annotated

import typer

from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import escape_unprintable, examples, run_app, tell_error

COMMANDS = (
    "show", "metrics", "samples", "diff", "compare", "table", "tail",
    "ls", "plot", "open", "tb", "web", "report", "mcp", "top",
    "tag", "note", "rename", "rm", "archive", "migrate", "du", "fsck", "trash",
    "export", "import", "lake", "sql", "push", "pull", "verify",
    "init", "integrate", "capture", "sweep", "resume", "restore-code", "rerun",
)  # fmt: skip
COMMAND_MODULES = {  # `import` cannot be the name of a module
    name: f"rla_client.cli.commands.{name.replace('-', '_')}{'_' * (name == 'import')}" for name in COMMANDS
}
FIRST_DAY = """\
rla lists, compares, plots and manages the runs of an RLA database. To begin with:

  rla init     write rla_config.yaml, and show what to add to a training script
  rla ls       list the runs
  rla show     show everything about the newest run, with a small chart
  rla plot     draw the return of all runs into plot.png
  rla web      show runs, curves and files in a browser, live

All commands: rla --help. One of them, with examples: rla COMMAND --help.
"""
LONG_LIVED = ("mcp", "sweep", "top", "web")
TIME_S = 1.0  # of processor time, so that completion also works on a busy machine
ASKED = "_RLA_COMPLETE"  # typer's variable, set by the shell's function
EXIT_FAULT = 1
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


def _print_version(asked: bool) -> None:
    if asked:
        from rla_client.contract import __version__

        print(f"rla {__version__}")  # noqa: T201
        raise typer.Exit


def make_app(command: str | None = None) -> typer.Typer:
    """The app.

    Args:
        command: name of the only command to add; None or an unknown name adds all.
    """
    from rla_client.cli.registration import MASTER

    app = typer.Typer(
        name="rla",
        help="List, compare, plot and manage the runs of an RLA database.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="RUN is a run's index, a unique part of it, or @last (the newest); "
        "-r RUN selects all runs that match. "
        "The database is --data-root, else RLA_DATA_ROOT, else the one found here, in data/, "
        "or in a parent folder beside rla_config.yaml.\n\n" + examples("rla ls", "rla plot --group lr"),
    )
    app.callback()(_group)
    for name in (command,) if command in COMMAND_MODULES else COMMANDS:
        import_module(COMMAND_MODULES[name]).register(app)
    # order in the help: `ls` first, commands on the master last
    app.registered_commands.sort(key=lambda one: (one.rich_help_panel == MASTER) - (one.name == "ls"))
    return app


def _group(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass  # with a callback, typer requires the command's name even if only one is registered


def main() -> None:
    """Run one command; the entry point of `rla`."""
    if os.environ.get(ASKED, "").startswith("complete_"):
        found = _completions()
        sys.stdout.write(f"{found}\n" if found else "")
        return
    escape_unprintable(sys.stdout, sys.stderr)
    warnings.formatwarning = lambda message, *_: f"warning: {_lines(message)}\n"  # without source code
    if len(sys.argv) == 1:
        sys.stdout.write(FIRST_DAY)
        return
    if {*sys.argv[1:2]}.isdisjoint(LONG_LIVED):
        gc.disable()  # for 10,000 rows, collecting garbage would take a fifth of a short command's time
    code = 0
    try:
        run_app(make_app(sys.argv[1]))
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else EXIT_FAULT
    except BrokenPipeError:
        _close_quietly()
        code = EXIT_PIPE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except (RlaError, OSError, UnicodeEncodeError) as error:
        tell_error(_lines(_words(error)))
        code = EXIT_FAULT
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        code = EXIT_PIPE
    sys.exit(code)


def _words(error: RlaError | OSError | UnicodeEncodeError) -> str:
    """Message of an error for the user; an error that is our fault is raised again."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{where}"
    if isinstance(error, UnicodeEncodeError):
        encoding = sys.getfilesystemencoding()
        if encoding == "utf-8":
            raise error
        return f"this Python reads file names as {encoding}\nhint: start it with PYTHONUTF8=1"
    return str(error)


def _lines(message: object) -> str:
    """A message without control characters, which untrusted names in it may hold."""
    from rla_client.database.text.safe_text import lines_text

    return lines_text(str(message))


def _close_quietly() -> None:
    """Keep the interpreter from reporting the closed pipe at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _completions() -> str:
    """Completions to print for the shell: the output of typer, adapted for bash and zsh.

    Bash splits `seed=1` and `--group=lr` into three words and replaces only the last one. For zsh, typer asks
    for file names if there is no completion; that is suppressed for completions of names.
    """
    from rla_client.cli.completion import names_wanted

    joined_prefix = _join_words(os.environ)
    out = io.StringIO()
    signal.signal(signal.SIGPROF, _too_long)
    with redirect_stdout(out), redirect_stderr(io.StringIO()), suppress(Exception, SystemExit):
        signal.setitimer(signal.ITIMER_PROF, TIME_S)
        make_app()(standalone_mode=True)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    lines = out.getvalue().splitlines()
    if names_wanted and lines == ["_files"]:
        return ""
    return "\n".join(line.removeprefix(joined_prefix) for line in lines)


def _too_long(*_: object) -> None:
    raise TimeoutError


def _join_words(environment: MutableMapping[str, str]) -> str:
    """Join words that bash split at `=` and `:`; returns the last word's part up to its last split."""
    if environment.get(ASKED) != "complete_bash":
        return ""
    words = environment.get("COMP_WORDS", "").split("\n")
    place = environment.get("COMP_CWORD", "")
    if not place.isdecimal() or len(words) < 2:  # noqa: PLR2004 - one word: nothing was split
        return ""
    joined: list[str] = []
    for word in words[: int(place) + 1]:
        glued = joined and (word in {"=", ":"} or joined[-1].endswith(("=", ":")))
        if glued and len(joined) > 1:
            joined[-1] += word
        else:
            joined.append(word)
    option, sign, value = joined[-1].partition("=")
    if sign and option.startswith("--"):
        joined[-1:] = [option, value]
    environment["COMP_WORDS"] = "\n".join(word or "''" for word in joined)
    environment["COMP_CWORD"] = str(len(joined) - 1)
    last = joined[-1]
    return last[: max(last.rfind("="), last.rfind(":")) + 1]


if __name__ == "__main__":
    main()
