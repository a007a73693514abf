"""Bundle of the page's modules as one script.

Each module becomes a function that returns its exports; its imports are taken from the modules before it.
Only the forms of import and export that the page's modules use are supported. A dynamic `import("./x.js")` is
resolved when all modules have run, so modules may depend on each other that way.
"""

from __future__ import annotations

import re

from rla_client.web import STATIC

REPLACED = {"api.js": "offline.js"}  # a report has no server
_IMPORT = re.compile(r'^import (?P<names>\w+|\{[^}]*\}) from "\./(?P<name>[\w./-]+)";$', re.MULTILINE)
_LATER = re.compile(r'\bimport\("\./(?P<name>[\w./-]+)"\)')
_EXPORT = re.compile(r"^export (?P<kind>(?:async )?function|class|const|let) (?P<name>\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export \{ (?P<name>\w+) as default \};?\s*\Z", re.MULTILINE)


def bundle(first: str = "main.js") -> str:
    """A classic script equivalent to the module `first`; it contains each module once.

    Raises:
        ValueError: a module uses an unsupported form, or modules import each other in a circle.
    """
    order: dict[str, str] = {}
    _add(first, order, ())
    looked: set[str] = set()
    while new := [name for name in order if name not in looked]:
        for name in new:
            looked.add(name)
            for found in _LATER.finditer(order[name]):
                _add(REPLACED.get(found["name"], found["name"]), order, ())
    parts = [_wrapped(name, text) for name, text in order.items()]
    return '"use strict";\nconst modules = {};\n' + "".join(parts)


def _add(name: str, order: dict[str, str], above: tuple[str, ...]) -> None:
    if name in order:
        return
    if name in above:
        raise ValueError(f"modules import each other: {' → '.join([*above, name])}")
    text = (STATIC / name).read_text()
    for found in _IMPORT.finditer(text):
        _add(REPLACED.get(found["name"], found["name"]), order, (*above, name))
    order[name] = text


def _wrapped(name: str, text: str) -> str:
    def taken(found: re.Match[str]) -> str:
        source = f'modules["{REPLACED.get(found["name"], found["name"])}"]'
        names = found["names"]
        return f"const {names.replace(' as ', ': ')} = {source}{'' if names.startswith('{') else '.default'};"

    def later(found: re.Match[str]) -> str:
        source = REPLACED.get(found["name"], found["name"])
        return f'Promise.resolve().then(() => modules["{source}"])'

    exports = [f"default: {found['name']}" for found in _DEFAULT.finditer(text)]  # uPlot exports nothing else
    exports = exports or [found["name"] for found in _EXPORT.finditer(text)]
    body = _DEFAULT.sub("", _EXPORT.sub(r"\g<kind> \g<name>", _LATER.sub(later, _IMPORT.sub(taken, text))))
    if left := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"{name}: the bundle does not support {left.group()}")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exports)} }};\n}})();\n'
