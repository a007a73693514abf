"""The documentation does what it shows: blocks run, links lead somewhere, the site builds strictly."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.docs_lab import (
    DOCS,
    LANGUAGES,
    ROOT,
    Assumed,
    Page,
    blocks,
    copy_project,
    make_project,
    pages,
    write_programs,
)
from support.docs_pages import PAGES
from support.page_lab import chromium, find_chromium
from support.waiting import wait_until

import rla_client
from rla_client import logger
from rla_client.compat.rla_names import RLA_NAMES
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE
from rla_client.manager import ExpManager
from rla_client.sweep.sweep_file import read_spec

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no checkout: the installed wheel is tested")
LONG = tuple(
    f"docs/{name}.md"
    for name in (
        "gallery",
        "how-to/sweeps",
        "how-to/look",
        "how-to/lake",
        "how-to/from-sb3",
        "how-to/integrations",
        "how-to/from-tensorboard",
        "how-to/from-wandb",
        "how-to/launchers",
    )
)  # they train or draw for long
MAX_NOT_RUN = 22
COMMAND = re.compile(r"(\$ )?(rla|rla-agent|pip|python|sudo) ")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs") / "bin"
    write_programs(folder)
    return folder


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(STATE_VARIABLE, str(base / "state"))
        patch.setenv(RUNTIME_VARIABLE, str(base / "run"))
        make_project(base / "project", programs)
        yield base / "project"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=pytest.mark.further if name_of(page) in LONG else ())
        for page in pages()
    ],
)
def test_every_block_runs(page: Path, project: Path, programs: Path, agent: Any, tmp_path: Path) -> None:
    assumed = PAGES.get(name_of(page), Assumed())
    if assumed.elsewhere:
        assert (ROOT / assumed.elsewhere).exists()
        return
    folder = copy_project(project, tmp_path / "project")
    with Page(folder, programs, assumed) as running:
        running.run(page)
        running.close()
        if assumed.after is not None:
            assumed.after(folder)


def test_few_blocks_are_not_run() -> None:
    every = [
        (name, block)
        for page in pages()
        for block in blocks(page)
        if not PAGES.get(name := name_of(page), Assumed()).elsewhere
    ]
    runnable = [(page, block) for page, block in every if block.language in LANGUAGES]
    left_out = [f"{page}:{block.line}: {block.reason}" for page, block in runnable if block.reason]
    assert len(runnable) > 40
    assert len(left_out) <= MAX_NOT_RUN, left_out
    named = {path for reason in left_out for path in re.findall(r"\btests/[\w/]+(?:\.py)?", reason)}
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_each_block_names_its_language(page: Path) -> None:
    """Blocks without one, and commands that pass for text, would be run by no test."""
    hidden = [
        f"{block.line}: {block.text}"
        for block in blocks(page)
        if not block.language or (block.language == "text" and COMMAND.match(block.text))
    ]
    assert hidden == []


def test_configurations_are_valid(tmp_path: Path) -> None:
    """Blocks of YAML: sections of `rla_config.yaml`, or of a sweep's file."""
    file, first = tmp_path / "file.yaml", ""
    for page in pages():
        for block in blocks(page):
            if block.language != "yaml" or name_of(page).startswith("docs/reference/"):
                continue
            if block.text[0].isupper():
                file.write_text(block.text)
                load_config(file)
                continue
            first = first or block.text
            file.write_text(block.text if block.text == first else merged(first, block.text))
            read_spec(file)
    assert first


def merged(first: str, other: str) -> str:
    """A sweep's file in which other sections stand for its own; the command takes any parameters."""
    sections = {part.split(":")[0]: part for part in re.split(r"^(?=\w)", first + other, flags=re.MULTILINE)}
    return "".join({**sections, "command": "command: python train.py {args}\n"}.values())


def test_assumptions_are_of_pages() -> None:
    assert PAGES.keys() <= {name_of(page) for page in pages()}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for link in LINK.findall(without_code(page)):
        path, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def without_code(page: Path) -> str:
    return re.sub(
        r"^( *)(```|~~~).*?^\1\2$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def anchors(page: Path) -> set[str]:
    """Of the headings, as Markdown renderers spell them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {re.sub(r"[ -]+", "-", title.strip()) for title in plain} | {
        title.strip().replace(" ", "-") for title in plain
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    site = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(ROOT / ".mkdocs.yml"),
        "-d",
        str(site),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return site


@pytest.mark.slow
def test_every_public_call_is_in_the_reference(site: Path) -> None:
    assert undocumented(site / "objects.inv") == set()


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_the_site_needs_no_server_and_no_network(site: Path) -> None:
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        found = wait_until(lambda: finds(page, site, "save_checkpoint"), 60, "a result of the search")
        assert "save_checkpoint" in found
    assert [address for address in asked if not address.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.further
@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
def test_the_search_finds_answers_by_the_words_of_who_asks(site: Path) -> None:
    log_media = (
        "How do I log an image, a video, a confusion matrix, a histogram, a table or a 3-D point cloud?"
    )
    asked = {
        "delete a run": "How do I delete a run?",
        "rename a run": "How do I rename a run, or give it a tag or a note?",
        "add a note": "How do I rename a run, or give it a tag or a note?",
        "compare last 10 runs": "How do I compare the last ten runs?",
        "filter by commit": "How do I find runs by date, or by git commit?",
        "runs by date": "How do I find runs by date, or by git commit?",
        "code diff": "Which version of the code did a run have, and which git diff?",
        "latex table error bars": "How do I get a LaTeX table with error bars over seeds?",
        "plot for a paper": "How do I get a plot for a paper?",
        "smooth curves": "How do I smooth a curve?",
        "pandas dataframe": "How do I use pandas, or export to CSV?",
        "export csv": "How do I use pandas, or export to CSV?",
        "git diff of a run": "Which version of the code did a run have, and which git diff?",
        "share with supervisor": "How do I share results with my supervisor?",
        "notification on my phone": "Can I get a message on my phone?",
        "hyperparameter search": "How do I run a hyperparameter search?",
        "log an image": log_media,
        "hide a run": "How do I pin, hide or archive runs?",
        "3d point cloud": log_media,
        "GPU memory": "Where do I see GPU memory?",
        "no internet": "Does it work without internet, or with files on NFS?",
    }
    with chromium() as browser:
        page = browser.new_page()
        for words, heading in asked.items():
            found = wait_until(partial(finds, page, site, words), 60, f"a result for {words!r}")
            assert heading in found.splitlines(), (words, found)


def finds(page: Any, site: Path, words: str) -> str:
    """The first result of the search; none where the words were typed before the page's script ran."""
    from playwright import sync_api as playwright_api

    page.goto(f"file://{site}/reference/api.html")
    page.fill("input.md-search__input", words)
    result = page.locator(".md-search-result__item").first
    with contextlib.suppress(playwright_api.TimeoutError):
        result.wait_for(timeout=10_000)
        result.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        return str(result.inner_text())
    return ""


def undocumented(inventory: Path) -> set[str]:
    """Public calls that no page of the reference has."""
    body = inventory.read_bytes().split(b"\n", 4)[4]
    known = {line.split(" ")[0] for line in zlib.decompress(body).decode().splitlines()}
    public = [getattr(rla_client, name) for name in (*rla_client.__all__, *RLA_NAMES)]
    public += [getattr(logger, name) for name in logger.__all__]
    public += [getattr(ExpManager, name) for name in documented_methods()]
    homes = {
        f"{each.__module__}.{each.__qualname__}"
        for each in public
        if callable(each) and hasattr(each, "__qualname__")
    }
    assert len(homes) > 80
    ours = {
        home for home in homes if home.startswith("rla_client.") and ".compat." not in home
    }  # RLA's constants
    return ours - known


def documented_methods() -> set[str]:
    """Methods of exp_manager that the overview names."""
    words = set(re.findall(r"\w+", (DOCS / "reference" / "api.md").read_text(encoding="utf-8")))
    return {name for name in vars(ExpManager) if not name.startswith("_") and name in words}
