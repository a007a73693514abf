"""Figure blobs that try to touch a file while they are read or drawn."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


class Global:
    """Pickles as a global of any name, also one that leads through dots."""

    def __init__(self, module: str, name: str) -> None:
        self.names = (module, name)


class Op:
    """Pickles as some things and the opcode that takes them."""

    def __init__(self, opcode: bytes, *parts: Any) -> None:
        self.opcode, self.parts = opcode, parts


Pickler: Any = pickle._Pickler  # its methods are not in the stubs


class _Writer(Pickler):  # type: ignore[misc]
    """Writes what no honest pickler would."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, Global):
            obj = Op(pickle.STACK_GLOBAL, *obj.names)
        if not isinstance(obj, Op):
            super().save(obj, save_persistent_id)
            return
        for part in obj.parts:
            self.save(part)
        self.write(obj.opcode)


def call(module: str, name: str, *arguments: Any) -> Op:
    return again(Global(module, name), *arguments)


def again(function: Any, *arguments: Any) -> Op:
    return Op(pickle.REDUCE, function, arguments)


def new(module: str, name: str, state: Any) -> Op:
    return Op(pickle.BUILD, Op(pickle.NEWOBJ, Global(module, name), ()), state)


def blob(figure: Any, **others: Any) -> bytes:
    """A figure blob around anything."""
    file = io.BytesIO()
    payload = {"figure": figure, "options": {}, "rc": {}, "fonts": [], "decoration": None} | others
    writer = _Writer(file, 5)
    writer.reducer_override = _window_free
    writer.dump(payload)
    return file.getvalue()


def _window_free(value: Any) -> Any:
    from rla_client.media.figure_pickle import _FigurePickler

    if type(value) in pickle._Pickler.dispatch:
        return NotImplemented
    return _FigurePickler(io.BytesIO()).reducer_override(value)


def touch(path: Path) -> str:
    return f"touch {path}"


def code(path: Path) -> str:
    return f"open({str(path)!r}, 'w').close()"


def text(**state: Any) -> Any:
    """A figure with a text that LaTeX would run."""
    return drawn(new("matplotlib.text", "Text", {"_text": "x", **state}))


def drawn(*artists: Any, **state: Any) -> Any:
    """A figure whose drawing comes to some artists."""
    figure: Any = Figure()
    figure.artists.clear()
    attributes = figure.__getstate__() | state
    attributes["artists"] = list(artists)
    return new("matplotlib.figure", "Figure", attributes)


def artist(name: str, path: Path) -> Any:
    code = call("functools", "partial", SYSTEM, touch(path))
    return drawn(new("matplotlib.lines", "Line2D", {name: code}))


def layout() -> Any:
    """A layout that takes the bytes of an array for addresses of objects."""
    inner = call("numpy", "dtype", "O8", False, True)
    state = (3, "|", None, ("a",), {"a": (inner, 0)}, 8, 8, 0)
    lie = Op(pickle.BUILD, call("numpy", "dtype", "V8", False, True), state)
    return call("numpy._core.numeric", "_frombuffer", b"A" * 8, lie, (1,), "C")


SYSTEM = Global("os", "system")
FIGURE = Global("matplotlib.figure", "Figure")
RULES = "rla_client.media.figure_reader"
EVIL: dict[str, Callable[[Path], bytes]] = {
    "os": lambda p: blob(call("os", "system", touch(p))),
    "posix": lambda p: blob(call("posix", "system", touch(p))),
    "subprocess": lambda p: blob(call("subprocess", "run", ["touch", str(p)])),
    "eval": lambda p: blob(call("builtins", "eval", code(p))),
    "exec": lambda p: blob(call("builtins", "exec", code(p))),
    "open": lambda p: blob(call("builtins", "open", str(p), "w")),
    "import": lambda _: blob(call("builtins", "__import__", "os")),
    "getattr": lambda p: blob(
        again(call("builtins", "getattr", Global("matplotlib", "os"), "system"), touch(p))
    ),
    "testing": lambda p: blob(call("matplotlib.testing", "subprocess_run_for_testing", ["touch", str(p)])),
    "testing's helper": lambda p: blob(call("matplotlib.testing", "subprocess_run_helper", str(p), 9)),
    "cbook": lambda p: blob(call("matplotlib.cbook", "_check_and_log_subprocess", ["touch", str(p)], 1)),
    "dots to os": lambda p: blob(call("matplotlib", "os.system", touch(p))),
    "dots in cbook": lambda p: blob(call("matplotlib.cbook", "subprocess.run", ["touch", str(p)])),
    "dots in a class": lambda _: blob(Global("matplotlib.figure", "Figure.__init__.__globals__")),
    "dots in a listed name": lambda _: blob(Global("matplotlib.axis", "Axis._format_with_dict.__globals__")),
    "dots in numpy": lambda p: blob(call("numpy", "testing.os.system", touch(p))),
    "numpy.testing": lambda p: blob(call("numpy.testing", "runstring", code(p), {})),
    "numpy.testing's own": lambda p: blob(call("numpy.testing._private.utils", "runstring", code(p), {})),
    "numpy.f2py": lambda p: blob(call("numpy.f2py", "compile", touch(p))),
    "numpy.ctypeslib": lambda p: blob(call("numpy.ctypeslib", "load_library", "x", str(p.parent))),
    "numpy.save": lambda p: blob(call("numpy", "save", str(p), 1)),
    "numpy.memmap": lambda p: blob(call("numpy", "memmap", str(p), "u1", "w+", 0, (1,))),
    "numpy.load": lambda p: blob(call("numpy", "load", str(p), None, True)),
    "numpy's subclass": lambda _: blob(
        call("numpy._core.multiarray", "_reconstruct", Global("subprocess", "Popen"), (0,), b"b")
    ),
    "numpy's layout": lambda _: blob(layout()),
    "pandas.eval": lambda p: blob(call("pandas", "eval", code(p))),
    "pandas.to_pickle": lambda p: blob(call("pandas", "to_pickle", 1, str(p))),
    "operator": lambda p: blob(
        again(call("operator", "methodcaller", "system", touch(p)), Global("matplotlib", "os"))
    ),
    "attrgetter": lambda _: blob(
        again(call("operator", "attrgetter", "os.system"), Global("matplotlib", "x"))
    ),
    "partial": lambda p: blob(call("functools", "partial", SYSTEM, touch(p))),
    "partial of a class": lambda p: blob(again(call("functools", "partial", FIGURE), touch(p))),
    "partial by its state": lambda p: blob(
        Op(
            pickle.BUILD,
            call("functools", "partial", Global("matplotlib.artist", "_stale_axes_callback")),
            (FIGURE, (touch(p),), {}, None),
        )
    ),
    "reduce": lambda p: blob(call("functools", "reduce", SYSTEM, [touch(p)])),
    "copyreg": lambda _: blob(call("copyreg", "_reconstructor", Global("subprocess", "Popen"), FIGURE, None)),
    "a class of its own": lambda _: blob(call("builtins", "type", "X", (FIGURE,), {})),
    "animation": lambda _: blob(call("matplotlib.animation", "FFMpegWriter")),
    "font manager": lambda p: blob(call("matplotlib.font_manager", "json_dump", {}, str(p))),
    "pyplot": lambda p: blob(call("matplotlib.pyplot", "savefig", str(p))),
    "mpl_toolkits": lambda p: blob(
        call("mpl_toolkits.mplot3d.axes3d", "cbook.subprocess.run", ["touch", str(p)])
    ),
    "called class": lambda p: blob(again(FIGURE, str(p))),
    "class with arguments": lambda p: blob(Op(pickle.NEWOBJ, FIGURE, (str(p),))),
    "changed class": lambda _: blob(Op(pickle.BUILD, FIGURE, (None, {"draw": FIGURE}))),
    "made class": lambda _: blob(
        call("matplotlib.cbook", "_picklable_class_constructor", FIGURE, "{0.__class__}", "draw", FIGURE)
    ),
    "savefig replaced": lambda _: blob(drawn(savefig=FIGURE)),
    "draw replaced": lambda p: blob(artist("draw", p)),
    "stale callback": lambda p: blob(artist("stale_callback", p)),
    "filter": lambda p: blob(artist("_agg_filter", p)),
    "remove method": lambda p: blob(artist("_remove_method", p)),
    "picker": lambda p: blob(artist("_picker", p)),
    "callback": lambda _: blob(
        new("matplotlib.cbook", "CallbackRegistry", {"callbacks": {"changed": {0: SYSTEM}}})
    ),
    "formatter": lambda _: blob(new("matplotlib.ticker", "FuncFormatter", {"func": SYSTEM})),
    "class changed": lambda _: blob(drawn(__class__=FIGURE)),
    "state by a method": lambda p: blob(drawn(__setstate__=touch(p))),
    "LaTeX": lambda _: blob(text(_usetex=True)),
    "LaTeX by a class": lambda _: blob(text(get_usetex=FIGURE)),
    "LaTeX by a style": lambda _: blob(drawn(), rc={"text.usetex": True}),
    "evaluated style": lambda p: blob(drawn(), rc={"axes.prop_cycle": f"cycler(c=[{code(p)}])"}),
    "ghostscript": lambda _: blob(drawn(), rc={"ps.usedistiller": "ghostscript"}),
    "imported backend": lambda _: blob(drawn(), options={"backend": "module://antigravity"}),
    "pillow": lambda _: blob(drawn(), options={"pil_kwargs": {"x": new("matplotlib.text", "Text", {})}}),
    "bound method": lambda _: blob(call(RULES, "bound_method", drawn(), "__init__")),
    "bound savefig": lambda p: blob(again(call(RULES, "bound_method", drawn(), "savefig"), str(p))),
    "called method": lambda p: blob(again(call(RULES, "bound_method", drawn(), "pick"), str(p))),
    "numpy's writer": lambda _: blob(call(RULES, "numpy_function", "save")),
    "instance": lambda p: b"(S'" + touch(p).encode() + b"'\nios\nsystem\n.",
    "oldest call": lambda p: b"cos\nsystem\n(S'" + touch(p).encode() + b"'\ntR.",
    "extension": lambda _: b"\x80\x04\x82\x01.",
    "appended": lambda p: blob(
        Op(pickle.APPEND, new("matplotlib.text", "Text", {"append": FIGURE}), touch(p))
    ),
    "a list": lambda _: blob([1]),
}  # fmt: skip
