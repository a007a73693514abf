"""Capture of programs that do not use this package (`rla-agent run --capture`).

`loader` starts the capture in each Python process. `hooks` run in the program without an import of
`rla_client`, as `_rla_capture.capture.hooks`. The other modules write the run; they are imported with the
first metric. In a notebook, `%load_ext rla_client.capture` starts the capture.
"""


def load_ipython_extension(shell: object) -> None:
    """Capture what this notebook logs from now on: the parts named by RLA_CAPTURE, by default all."""
    import os  # noqa: PLC0415 - hooks need none of this

    from rla_client.capture.loader import sitecustomize  # noqa: PLC0415
    from rla_client.contract.capture.parts import CAPTURE_VARIABLE  # noqa: PLC0415

    del shell
    os.environ.setdefault(CAPTURE_VARIABLE, "all")
    sitecustomize.start()
