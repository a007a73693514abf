"""One prompt through the training."""

from __future__ import annotations

import json
import math
from typing import Any

from rla_client.database.samples.sample_query import matching
from rla_client.database.samples.sample_text import cell_text
from rla_client.database.samples.word_diff import word_diff
from rla_client.web.page_json import sent
from rla_client.web.run_registry import Site
from rla_client.web.sample_indexes import cached_index, refreshed
from rla_client.web.sample_list import WHOLE_CHARS

STORY_STEPS = 200


def story(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """One prompt over time-steps: the best completion of each step and its difference to the one before."""
    kept = cached_index(site, asked)
    with kept.lock:
        index = refreshed(kept)
        rows = matching(index, group=str(asked.get("group") or ""), name=str(asked.get("name") or "") or None)
        reward = index.columns.get("reward", [None] * len(index))
        steps: dict[float, list[int]] = {}
        for row in rows:
            steps.setdefault(index.columns["step"][row], []).append(row)
        curve = []
        best = []
        for step, own in sorted(steps.items()):
            values = [reward[row] for row in own if isinstance(reward[row], int | float)]
            mean = sum(values) / len(values) if values else None
            curve.append([sent(step), sent(mean), len(own)])
            best.append(
                max(own, key=lambda row: reward[row] if isinstance(reward[row], int | float) else -math.inf)
            )
        shown = best[-STORY_STEPS:]
        lines = dict(index.texts(sorted(shown)))
    steps_shown: list[Any] = []
    before: str | None = None
    size = 0
    for row in shown:
        sample = json.loads(lines[row])
        text = cell_text(sample.get("completion", ""))
        pieces = [["same", text]] if before is None else [list(piece) for piece in word_diff(before, text)]
        size += len(text)
        steps_shown.append(
            {"row": row, "step": sent(sample["step"]), "reward": sent(sample.get("reward")), "pieces": pieces}
        )
        before = text
        if size > WHOLE_CHARS:
            break
    prompt = cell_text(json.loads(lines[shown[0]]).get("prompt", "")) if shown else ""
    return {"curve": curve, "steps": steps_shown, "prompt": prompt, "earlier": len(best) - len(shown)}
