"""`rla_client.log` takes media: each becomes a file of the results with its name and time-step."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import numpy as np, sys
import rla_client
from rla_client import Audio, Histogram, Html, Image, Table, Video
(open("own.html", "w")).write("<i>own</i>")
run = rla_client.init("media", rla_config={"LOG_USED": ["csv", "tensorboard"]}, data_root=sys.argv[1])
values = {
    "loss": 0.5, "group": {"picture": Image(np.zeros((8, 8, 3), np.uint8), caption="black")},
    "film": Video(np.zeros((4, 16, 16, 3), np.uint8), fps=4, format="gif"),
    "sound": Audio(np.zeros(80), 800), "actions": Histogram(np.arange(100.0)), "page": Html("<b>x</b>"),
    "own": Html("own.html"), "rows": Table(["a", "b"], [[1, [1, 2]]]), "two": [Html("1"), Html("2")],
    "wrong": Audio(np.zeros((2, 2, 2))), "gone": Image("there/is/none.png"),
}
rla_client.log(values, step=7)
rla_client.log({"loss": 0.25, "page": Html("later")}, step=8)
print(run.flush(60))
print(run.results_dir)
"""


@pytest.mark.slow
def test_each_becomes_a_file(agent: Any, tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    assert agent.alive
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "data")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    flushed, folder = done.stdout.splitlines()[-2:]
    assert flushed == "False", "two could not be kept, which flush says"
    results = Path(folder)
    found = {path.relative_to(results).as_posix() for path in results.rglob("*") if path.is_file()}
    assert found == {
        "group/7-picture.png", "7-film.gif", "7-sound.wav", "7-actions.histogram.json", "7-page.html",
        "7-own.html", "7-rows.csv", "7-two-0.html", "7-two-1.html", "8-page.html",
    }  # fmt: skip
    assert (results / "7-rows.csv").read_text() == 'a,b\n1,"[1, 2]"\n'
    assert (results / "7-own.html").read_text() == "<i>own</i>"
    assert sum(json.loads((results / "7-actions.histogram.json").read_text())["counts"]) == 100
    with wave.open(str(results / "7-sound.wav")) as file:
        assert file.getframerate() == 800
    from PIL import Image

    assert Image.open(results / "group" / "7-picture.png").info["Description"] == "black"
    (run_json,) = tmp_path.glob("data/log/media/*/*/*/*/run.json")
    about = json.loads(run_json.read_text())
    assert about["lost_others"] == 2
    rows = (run_json.parent / "progress.csv").read_text().splitlines()
    assert rows[0] == "loss,time-step,timestamp"
