"""Capture of programs that do not use this package (`rla-agent run --capture`).

`loader` starts it in each Python process. `hooks` run in the program: there `rla_client` is not imported, and
they are found as `_rla_capture.capture.hooks`. The modules beside them write the run; they are imported when
the first metric comes. In a notebook `%load_ext rla_client.capture` starts it.
"""


def load_ipython_extension(shell: object) -> None:
    """Capture what this notebook logs from here on, as RLA_CAPTURE says, or all of it."""
    import os  # noqa: PLC0415 - hooks need none of this

    from rla_client.capture.loader import sitecustomize  # noqa: PLC0415
    from rla_client.contract.capture.parts import CAPTURE_VARIABLE  # noqa: PLC0415

    del shell
    os.environ.setdefault(CAPTURE_VARIABLE, "all")
    sitecustomize.start()
