"""Capture of programs that do not use this package (`rla-agent run --capture`).

`loader` starts it in each Python process. `hooks` run in the program: there `rla_client` is not imported, and
they are found as `_rla_capture.capture.hooks`. The modules beside them write the run; they are imported when
the first metric comes.
"""
