"""The tab Samples of a run, clicked in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from PIL import Image
from support.page_runs import HOSTILE, LiveRun
from support.page_view import box_of
from support.sampled import write_samples
from support.written_runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults
    from support.page_lab import PageServer

pytestmark = [pytest.mark.slow, pytest.mark.further]
TALK = [
    {"role": "user", "content": "what is 6 * 7?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "folded thought",
        "tool_calls": [{"function": {"name": "calc", "arguments": "6*7"}}],
    },
    {"role": "tool", "name": "calc", "content": "folded 42"},
]


@pytest.fixture
def shown(page_server: Callable[..., PageServer], root: Path, page: Page) -> Page:
    """The tab of a run with talks, rewards and hostile texts."""
    index = write_run(root)
    rows = [
        {
            "prompt": TALK if n % 2 else f"prompt {text}",
            "completion": f"{text} <|im_end|>",
            "reward": n - 5,
            text: text,
        }
        for n, text in enumerate(HOSTILE)
    ]
    write_samples(root, "task", index, [(step, rows) for step in (10, 20)])
    parts = "/".join(quote(part, safe="") for part in f"0/task/{index}".split("/"))
    page.goto(f"{page_server(root).url}#/run/{parts}?tab=samples")
    page.locator("table.samples tbody tr").first.wait_for()
    return page


def _rows(page: Page) -> int:
    return page.locator("table.samples tbody tr").count()


def test_the_newest_step_first_then_any(shown: Page) -> None:
    assert _rows(shown) == len(HOSTILE)
    shown.get_by_text(f"{len(HOSTILE)} of {2 * len(HOSTILE)} samples").wait_for()
    shown.get_by_label("all steps").check()
    shown.get_by_text(f"{2 * len(HOSTILE)} of {2 * len(HOSTILE)} samples").wait_for()
    shown.get_by_label("Step back").click()
    shown.wait_for_function("() => document.querySelector('table.samples tbody td').textContent === '10'")


def test_files_of_a_sample_are_shown(
    page_server: Callable[..., PageServer], root: Path, page: Page, faults: Faults
) -> None:
    faults.allow("404")  # the file that is not there
    index = write_run(root)
    results = root / "results" / "task" / index / "samples" / "train"
    results.mkdir(parents=True)
    Image.new("RGB", (8, 8), "red").save(results / "10-prompt-1.png")
    picture = {"image": "samples/train/10-prompt-1.png"}
    content = [{"type": "text", "text": "what is it?"}, {"type": "image", "image": picture}]
    row = {
        "prompt": [{"role": "user", "content": content}],
        "completion": "red",
        "seen": picture,
        "lost": {"image": "samples/train/10-lost-1.png"},
        "notes": {"table": "samples/train/10-notes-1.csv"},
    }
    write_samples(root, "task", index, [(10, [row])])
    parts = "/".join(quote(part, safe="") for part in f"0/task/{index}".split("/"))
    page.goto(f"{page_server(root).url}#/run/{parts}?tab=samples")
    page.locator("table.samples tbody tr").first.click()
    detail = page.locator(".sample-detail")
    detail.get_by_text("not there any more, or not readable").wait_for()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.sample img')].every((one) => one.naturalWidth === 8)"
    )
    assert detail.locator("img").count() == 2
    assert detail.locator(".turn img").count() == 1
    assert detail.get_by_role("link", name="10-notes-1.csv").is_visible()


def test_a_row_opens_its_sample_by_mouse_and_by_keys(shown: Page) -> None:
    rows = shown.locator("table.samples tbody tr")
    detail = shown.locator(".sample-detail")
    rows.nth(2).locator("td").last.click()
    detail.get_by_text("<|im_end|>").first.wait_for()
    assert rows.nth(2).get_attribute("class") == "chosen"
    first = detail.get_by_role("heading", level=2).inner_text()
    rows.nth(2).get_by_role("button").focus()
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("Enter")
    shown.wait_for_function(
        "(first) => document.querySelector('.sample-detail h2').textContent !== first", arg=first
    )
    assert rows.nth(3).get_attribute("class") == "chosen"


def test_the_worst_are_found_by_filter_sort_and_bin(shown: Page, faults: Faults) -> None:
    where = shown.get_by_label("Only samples that match")
    where.fill("reward < -2")
    where.press("Enter")
    shown.get_by_text(f"3 of {2 * len(HOSTILE)} samples").wait_for()
    shown.get_by_role("button", name="reward", exact=True).click()
    shown.locator("th[aria-sort=ascending]").wait_for()
    where.fill("rewrd < 1")
    where.press("Enter")
    shown.get_by_text("did you mean 'reward'").wait_for()
    faults.allow("400")
    where.fill("")
    where.press("Enter")
    shown.get_by_role("button", name="reward 4: 1 samples").click()
    shown.get_by_text(f"1 of {2 * len(HOSTILE)} samples").wait_for()


def test_a_talk_is_read_with_its_tools_folded_and_nothing_is_executed(shown: Page) -> None:
    for place in range(len(HOSTILE)):
        shown.locator("table.samples tbody button.link").nth(place).click()
        shown.get_by_text(f"Sample {len(HOSTILE) + place}", exact=True).wait_for()
        assert (
            HOSTILE[place][:20] in shown.locator(".sample-detail").inner_text()
            or not HOSTILE[place].isprintable()
        )
    assert shown.evaluate("window.hacked") is None
    shown.get_by_text("calls calc").wait_for()
    assert not shown.locator("pre", has_text="folded thought").is_visible()
    shown.get_by_text("reasoning", exact=True).click()
    assert shown.locator("pre", has_text="folded thought").is_visible()
    answer = shown.locator("pre", has_text="folded 42")
    assert not answer.is_visible()
    shown.get_by_text("answer of the tool").click()
    assert answer.is_visible()
    assert shown.locator(".special").count() == 1
    shown.get_by_label("without special tokens").check()
    assert shown.locator(".special").count() == 0


def test_it_fits_a_narrow_page_and_rewards_are_numbers(
    page_server: Callable[..., PageServer], root: Path, page: Page
) -> None:
    index = write_run(root)
    rows = [{"prompt": "p", "completion": "c", "reward": n, "rewards": {"right": n / 3}} for n in range(40)]
    write_samples(root, "task", index, [(step, rows) for step in (10, 20)])
    parts = "/".join(quote(part, safe="") for part in f"0/task/{index}".split("/"))
    page.set_viewport_size({"width": 420, "height": 800})
    page.goto(f"{page_server(root).url}#/run/{parts}?tab=samples")
    page.locator("table.samples tbody tr").first.wait_for()
    for last in (page.locator(".slider output"), page.locator(".bins .ends")):
        box = box_of(last)
        assert box["x"] + box["width"] <= 420
    page.locator("table.samples tbody button.link").nth(1).click()
    page.locator(".sample-detail dt", has_text="rewards/right").wait_for()
    page.wait_for_function(
        """() => {
            const top = document.querySelector(".sample-detail h2").getBoundingClientRect().top;
            return top > 41 && top < 400;  // below the page's head, not below 40 rows
        }"""
    )
    page.get_by_text("0.333333", exact=True).last.wait_for()


def test_text_group_and_story(shown: Page) -> None:
    shown.get_by_label("Text in a sample; small letters match capitals").fill("javascript:window")
    shown.keyboard.press("Enter")
    shown.get_by_text(f"1 of {2 * len(HOSTILE)} samples with the text").wait_for()
    shown.locator("table.samples tbody button.link").first.click()
    shown.get_by_role("button", name="Its group side by side").click()
    shown.locator(".side-by-side article").first.wait_for()
    assert shown.locator(".side-by-side article").count() == len(HOSTILE) // 2
    assert shown.locator(".side-by-side article.chosen").count() == 1
    below, wide = box_of(shown.locator(".sample-detail")), box_of(shown.locator(".samples-list"))
    assert below["y"] >= wide["y"] + wide["height"]
    assert below["width"] >= wide["width"] - 1
    shown.get_by_role("button", name="Its prompt over steps").click()
    shown.locator(".small-curve").wait_for()
    shown.reload()
    shown.locator(".sample").wait_for()
    assert shown.evaluate("window.hacked") is None


def test_new_samples_of_a_living_run_come_by_themselves(
    page_server: Callable[..., PageServer], root: Path, page: Page
) -> None:
    live = LiveRun(root)
    parts = "/".join(quote(part, safe="") for part in f"0/task/{live.index}".split("/"))
    page.goto(f"{page_server(root).url}#/run/{parts}?tab=samples")
    page.get_by_text("no samples:").wait_for()
    rows = [{"prompt": "p", "completion": "c", "reward": 0.5}]
    write_samples(root, "task", live.index, [(1, rows)])
    page.get_by_text("1 of 1 samples").wait_for()
    write_samples(root, "task", live.index, [(2, rows * 3)])
    page.get_by_text("3 of 4 samples").wait_for()


def test_a_click_on_a_curve_opens_the_samples_of_its_step(
    page_server: Callable[..., PageServer], root: Path, page: Page
) -> None:
    index = write_run(root, rows=10)
    write_samples(root, "task", index, [(step, [{"prompt": "p", "reward": step}]) for step in range(10)])
    parts = "/".join(quote(part, safe="") for part in f"0/task/{index}".split("/"))
    page.goto(f"{page_server(root).url}#/run/{parts}")
    page.locator(".plot .u-over").first.wait_for()
    box = box_of(page.locator(".plot .u-over").first)
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2)
    page.locator("table.samples tbody tr").first.wait_for()
    step = int(page.locator("table.samples tbody td").first.inner_text())
    assert 3 <= step <= 7
    assert f"step={step}" in page.url
