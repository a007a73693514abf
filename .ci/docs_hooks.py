"""Pages of the documentation site that are made from the code while MkDocs builds it.

`reference/rla.md` and `reference/rla-agent.md` from the commands, `reference/config.md` from the template
`rla_config.yaml` and its schema, `reference/decisions.md` from the titles in `adr/`. A file of the
repository that a page links to (`../examples/…`) becomes a page too, below `source/`, so that the site
needs nothing outside itself. Pages link to what is in the repository, so that links lead somewhere in a
clone; where a generated page says the same in full, the site has that (`INSTEAD`).
"""

from __future__ import annotations

import importlib
import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click

from rla_client.config import rules
from rla_client.config.schema import Config
from rla_client.contract.layout import DEFAULT_LOG_TYPES

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]+)")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".ipynb": "python"}
SEARCH_BOOST = {"faq.md": 8, "adr/": 0.3, "architecture.md": 0.3}  # who asks means the answer, not its design
INSTEAD = {"rla_config.yaml": "reference/config.md", "docs/adr": "reference/decisions.md"}
NUMBER = re.compile(r"^[\d_.]+$")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    docs = Path(config.docs_dir)
    pages = {
        "reference/rla.md": command_page("rla", "rla_client.cli.app"),
        "reference/rla-agent.md": command_page("rla-agent", "rla_agent.command.app"),
        "reference/config.md": config_page((ROOT / "rla_config.yaml").read_text(encoding="utf-8")),
        "reference/decisions.md": decisions_page(docs / "adr"),
    }
    for page in [file for file in files if file.is_documentation_page()]:
        for match in LINK.finditer(page.content_string):
            if source := outside(page.src_uri, match["path"]):
                pages[f"source/{source}.md"] = source_page(source)
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Send links to files of the repository to their pages; have the search find answers first."""
    here = page.file.src_uri
    for begin, boost in SEARCH_BOOST.items():
        if here.startswith(begin):
            page.meta["search"] = {"boost": boost}

    def target(match: re.Match[str]) -> str:
        source = outside(here, match["path"])
        page = INSTEAD.get(in_repository(here, match["path"])) or (f"source/{source}.md" if source else "")
        return posixpath.relpath(page, posixpath.dirname(here)) if page else match["path"]

    return LINK.sub(target, markdown)


def outside(page: str, link: str) -> str:
    """The repository's file that a page links to; empty for what lies in `docs`, or nowhere."""
    path = in_repository(page, link)
    inside = path.startswith(("docs/", "..")) or path in INSTEAD
    return "" if inside or not (ROOT / path).is_file() else path


def in_repository(page: str, link: str) -> str:
    """Where a link of a page leads, from the root of the repository."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def source_page(path: str) -> str:
    """A file of the repository, highlighted; of a notebook, its code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells) + "\n"
    return f"# {path}\n\n~~~~{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}~~~~\n"


def command_page(name: str, module: str) -> str:
    """Every command of a program with its arguments and options."""
    command = typer.main.get_command(importlib.import_module(module).make_app())
    context = command.make_context(name, [], resilient_parsing=True)
    return str(get_docs_for_click(obj=command, ctx=context, name=name))


def decisions_page(folder: Path) -> str:
    """The decision records by title."""
    lines = ["# Decisions\n\nWhy it is built as it is: one page each, with alternatives and measurements.\n"]
    for path in sorted(folder.glob("*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}](../adr/{path.name})")
    return "\n".join(lines) + "\n"


CONFIG_HEAD = """# rla_config.yaml

`rla init` writes this file with every key, its default and a comment; `rla-agent check-config` names every
fault with its line. A key that is left out or empty has its default. Paths are relative to the folder of
the file.

"""
CONFIG_TABLE = "| key | default | values | meaning |\n|---|---|---|---|"


def config_page(template: str) -> str:
    """The keys of the template by section: default and comment from there, values from the schema."""
    known = dict(schema_keys(Config, ""))
    found = list(template_keys(template))
    missing = known.keys() ^ {key for key, _, _ in found}
    if missing:
        raise ValueError(f"not in both the template and the schema: {sorted(missing)}")
    parts: dict[str, list[str]] = {"": []}
    for key, default, comment in found:
        section, _, name = key.rpartition(".")
        if isinstance(known[key], type):
            parts[key] = (
                [f"\n## {key}\n", comment, "", CONFIG_TABLE] if comment else [f"\n## {key}\n", CONFIG_TABLE]
            )
        else:
            cells = (f"`{name}`", default and f"`{default}`", values(known[key]), comment.replace("|", "\\|"))
            parts[section].append(f"| {' | '.join(cells)} |")
    top = [CONFIG_TABLE, *parts.pop("")]
    return CONFIG_HEAD + "\n".join([*top, *(line for part in parts.values() for line in part)]) + "\n"


def schema_keys(schema: Any, section: str) -> Iterator[tuple[str, Any]]:
    """(dotted key, its rule) of a section; (its name, the dataclass) for a section itself."""
    for item in fields(schema):
        if item.metadata.get("internal"):
            continue
        rule = item.metadata.get("rule", item.default_factory)
        key = f"{section}.{item.name}" if section else item.name.upper()
        yield key, rule
        if isinstance(rule, type):
            yield from schema_keys(rule, key)


def template_keys(template: str) -> Iterator[tuple[str, str, str]]:
    """(dotted key, default as it is written, comment) of each key, in order."""
    comment: list[str] = []
    section, lines = "", template.splitlines()
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#"):
            comment.append(text[1:])
            continue
        if match := re.match(r"( *)(\w+): ?(.*)", line):
            section = section if match[1] else match[2]
            key = f"{section}.{match[2]}" if match[1] else match[2]
            items = match[3] or ", ".join(list_below(lines[number + 1 :]))
            yield key, items.replace("''", ""), in_words(comment)
        if not text or not text.startswith("-"):
            comment = []


def list_below(lines: list[str]) -> Iterator[str]:
    """The items of a list that begins here."""
    for line in lines:
        if not line.strip().startswith("- "):
            return
        yield line.strip().removeprefix("- ")


def in_words(comment: list[str]) -> str:
    """A comment as one paragraph, without examples."""
    text = " ".join(line.strip() for line in comment if not line.startswith("   ")).strip()
    return re.sub(r"docs/(how-to/(\w+)\.md)", r"[\2](../\1)", text)


def values(rule: Any) -> str:
    """What a key may hold."""
    if isinstance(rule, rules.Flag):
        return "`true`, `false`"
    if isinstance(rule, rules.Choice):
        return ", ".join(f"`{word}`" for word in rule.words)
    if isinstance(rule, rules.Texts):
        return "list of " + (", ".join(f"`{word}`" for word in rule.words) if rule.words else "texts")
    if isinstance(rule, rules.Kinds):
        return "`all`, or list of " + ", ".join(f"`{kind}`" for kind in DEFAULT_LOG_TYPES)
    if isinstance(rule, rules.Number):
        return str(rule._wanted()).removeprefix("a ")  # noqa: SLF001 - as errors word it
    return "text" if isinstance(rule, rules.Text) else "section"
