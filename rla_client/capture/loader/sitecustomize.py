# mypy: ignore-errors
"""Start of the capture in a Python process.

It imports only sys and os, parses on Python 2.7, and does nothing without RLA_CAPTURE or below Python 3.10.
The folder of `rla_client` becomes the package `_rla_capture`, which contains the hooks; `rla_client` itself
is not imported.
"""

import os
import sys

_OFF = ("", "0", "off", "none", "false", "no")
_PACKAGES = ("", ".capture", ".capture.hooks", ".contract", ".contract.capture")


def _note(word, text):
    path = os.environ.get("RLA_CAPTURE_NOTES")
    if path:
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, (word + " " + text + "\n").encode("utf-8", "replace"))
            finally:
                os.close(file)
        except OSError:
            pass


def _package_folder():
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find("rla_client", None)
        if spec is not None and spec.submodule_search_locations:
            for folder in spec.submodule_search_locations:
                return folder
    return None


def _end_check():
    """End this process if it is only a probe of `rla capture check`."""
    if os.environ.get("RLA_CAPTURE_CHECK"):
        os._exit(0)


def start():  # type: () -> None
    """Install the hooks, once."""
    wanted = os.environ.get("RLA_CAPTURE", "").strip().lower() not in _OFF
    if not wanted or sys.version_info < (3, 10) or "_rla_capture" in sys.modules:
        return
    try:
        folder = _package_folder()
        if folder is None or not os.path.exists(os.path.join(folder, "capture", "hooks", "finder.py")):
            _note("absent", sys.executable or "a Python program")
            _end_check()
            return
        for name in _PACKAGES:  # made here, which saves loading five `__init__` files
            package = type(sys)("_rla_capture" + name)
            package.__path__ = [folder + name.replace(".", os.sep)]
            sys.modules["_rla_capture" + name] = package
        from _rla_capture.capture.hooks import finder  # noqa: PLC0415 - only with RLA_CAPTURE

        finder.install(os.environ["RLA_CAPTURE"])
        _note("loaded", sys.executable or "a Python program")
        _end_check()
    except Exception as error:  # noqa: BLE001 - the program must run on
        _note("refused", "the capture did not start: " + type(error).__name__ + ": " + str(error))


def _run_own_sitecustomize():
    """Run the user's `sitecustomize`, which ours shadows."""
    ours = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != ours]
    this = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401, PLC0415 - theirs
    except ImportError as error:
        if getattr(error, "name", __name__) != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


if __name__ == "sitecustomize":
    start()
    if sys.version_info >= (3,):
        _run_own_sitecustomize()
