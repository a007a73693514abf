"""Bundle of the page's modules as one script.

Each module is a function that gives what it exports, and what it imports is taken from those before it. This
knows the few forms that the page's modules use (a test builds all of them), and is not a general tool.
`import("./x.js")` is answered later, when all are there, so modules may wait for each other that way.
"""

from __future__ import annotations

import re

from rla_client.web import STATIC

REPLACED = {"api.js": "offline.js"}  # of a file
_IMPORT = re.compile(r'^import (?P<names>\w+|\{[^}]*\}) from "\./(?P<name>[\w./-]+)";$', re.MULTILINE)
_LATER = re.compile(r'\bimport\("\./(?P<name>[\w./-]+)"\)')
_EXPORT = re.compile(r"^export (?P<kind>(?:async )?function|class|const|let) (?P<name>\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export \{ (?P<name>\w+) as default \};?\s*\Z", re.MULTILINE)


def bundle(first: str = "main.js") -> str:
    """The text of a classic script that does what the module `first` does; modules stand in it once each.

    Raises:
        ValueError: a module uses a form that this does not know, or modules import each other in a circle.
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

    given = [f"default: {found['name']}" for found in _DEFAULT.finditer(text)]  # uPlot; it has nothing else
    given = given or [found["name"] for found in _EXPORT.finditer(text)]
    body = _DEFAULT.sub("", _EXPORT.sub(r"\g<kind> \g<name>", _LATER.sub(later, _IMPORT.sub(taken, text))))
    if left := re.search(r"^(?:import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"{name}: {left.group()} is a form that the bundle does not know")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(given)} }};\n}})();\n'
