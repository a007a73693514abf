"""What figures, videos and the code backup cost the training loop; prints ratios, fails on nothing.

Each figure stands beside its floor, measured in the same run: savefig for a figure, a warm
memcpy of the same bytes for a video.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rla_agent.jobs.job_source import free_slot
from rla_client.code.backup import back_up_code
from rla_client.code.backup_plan import BackupPlan
from rla_client.code.environment import EnvironmentCapture
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.job.arena_layout import SlotRef
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.media import job_sender, recording_target
from rla_client.media.figure_recorder import MatplotlibRecorder
from rla_client.media.image_recorder import ImgRecorder
from rla_client.media.recording_target import RecordingTarget, bind
from rla_client.media.video_recorder import VideoRecorder
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox

FIGURE_BUDGET_MS = 5.0
VIDEO_SHAPE = (300, 256, 256, 3)
VIDEO_FACTOR, VIDEO_EXTRA_MS = 1.5, 2.0
BACKUP_BUDGET_MS = 150.0
DEADLINE_S = 20.0


def timed(
    call: Callable[[], object], repeats: int, after: Callable[[], object] = lambda: None
) -> list[float]:
    """Milliseconds of each call, sorted; `after` runs between them and is not counted."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - started))
        after()
    return sorted(taken)


def told(taken: list[float]) -> str:
    """Best, median and worst."""
    return f"best {taken[0]:.2f}  p50 {taken[len(taken) // 2]:.2f}  max {taken[-1]:.2f} ms"


class Run:
    """A run in a folder of its own, whose jobs are thrown away."""

    def __init__(self, folder: Path) -> None:
        places = Places(folder / "state", folder / "run")
        self.results = folder / "results"
        self.results.mkdir()
        opening = make_opening(root="/", folders={"log": "."}, sinks=(), names={}, item={})
        self.outbox = Outbox(places, opening, AgentConfig(autostart=False))
        job_sender.AGENT_START_S = float("inf")  # as with an agent
        bind(RecordingTarget(self.results, self.outbox, print))

    def forget(self) -> None:
        """Give slots back and remove blobs, as the agent does after each job."""
        folder = self.outbox.stream_folder
        assert folder is not None
        for segment in folder.glob("*.seg"):
            for frame in iter_frames(segment.read_bytes()):
                if frame.kind == FrameKind.JOB:
                    fields = unpack(frame.payload)[1]
                    if "slot" in fields:
                        free_slot(SlotRef(*fields["slot"]), folder / "blobs")
        for blob in (folder / "blobs").glob("*"):
            blob.unlink()

    def close(self) -> None:
        """Leave nothing behind."""
        bind(None)
        self.outbox.release()


def bench_figure(run: Run) -> None:
    """4 curves of 1,000 points, drawn, wrapped, and saved by matplotlib itself."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    values = np.random.default_rng(0).random((4, 1000)).cumsum(axis=1)

    def draw() -> None:
        for number in range(4):
            plt.plot(values[number], label=f"run {number}")

    def draw_alone() -> None:
        plt.figure()
        draw()
        plt.close()

    def wrap() -> None:
        MatplotlibRecorder.pretty_plot_wrapper("curve", draw, pretty_plot=True, xlabel="steps", ylabel="loss")

    drawing = timed(draw_alone, 25)
    wrapped = timed(wrap, 25, run.forget)
    plt.figure()
    draw()
    plt.legend(prop={"size": 15})
    saved = timed(lambda: plt.savefig(io.BytesIO(), format="png", bbox_inches="tight"), 15)
    plt.close("all")
    beyond = wrapped[len(wrapped) // 2] - drawing[len(drawing) // 2]
    print(f"figure: drawing alone       {told(drawing)}")
    print(f"figure: pretty_plot_wrapper {told(wrapped)}")
    print(f"figure: savefig             {told(saved)}")
    print(
        f"figure: beyond the drawing  {beyond:.2f} ms (budget {FIGURE_BUDGET_MS}); "
        f"savefig is {saved[len(saved) // 2] / max(beyond, 0.01):.1f} x"
    )


def wait_slots(count: int, size: int = 0) -> None:
    """Wait for `count` slots of at least `size` bytes, which are made in the background."""
    deadline = time.monotonic() + DEADLINE_S
    slots = recording_target.recording_state().slots
    assert slots is not None
    pool = slots._pool
    assert pool is not None

    def ready() -> bool:
        arena = pool.current if pool.wait_prepared(1) else None
        return arena is not None and arena.slots >= count and arena.slot_bytes >= size

    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("no slot was made")
        time.sleep(0.01)


def bench_video(run: Run) -> None:
    """300 frames of 256 x 256: the first one, warm, one by one, and the first of an unforeseen size."""
    video = np.random.default_rng(0).integers(0, 255, VIDEO_SHAPE, dtype=np.uint8)
    buffer = np.empty_like(video)
    copied = timed(lambda: np.copyto(buffer, video), 25)
    wait_slots(1)
    first = timed(lambda: VideoRecorder.save("first", video), 1, run.forget)
    second = timed(lambda: VideoRecorder.save("second", video), 1, run.forget)
    wait_slots(2)
    warm = timed(lambda: VideoRecorder.save("warm", video), 25, run.forget)
    longer = np.concatenate([video, video])
    unforeseen = timed(lambda: VideoRecorder.save("longer", longer), 1, run.forget)
    wait_slots(1, longer.nbytes)
    later = timed(lambda: VideoRecorder.save("longer", longer), 5, run.forget)
    floor, p50 = copied[len(copied) // 2], warm[len(warm) // 2]
    print(f"video {video.nbytes / 1e6:.0f} MB: memcpy       {told(copied)}")
    print(f"video {video.nbytes / 1e6:.0f} MB: first save   {first[0]:.2f} ms, the second {second[0]:.2f} ms")
    print(f"video {video.nbytes / 1e6:.0f} MB: later saves  {told(warm)}")
    print(
        f"video {longer.nbytes / 1e6:.0f} MB: first of a size over the prepared one {unforeseen[0]:.2f} ms, "
        f"later {told(later)}"
    )
    print(
        f"video: {p50 / floor:.2f} x memcpy; budget {VIDEO_FACTOR} x + {VIDEO_EXTRA_MS} ms "
        f"= {VIDEO_FACTOR * floor + VIDEO_EXTRA_MS:.2f} ms"
    )
    with VideoRecorder("frames") as recorder:
        added = timed(lambda: recorder.add(video[0]), 300)
    print(f"video: one frame of 197 kB  {told(added)}")
    run.forget()
    image = timed(lambda: ImgRecorder.save("image", video[0]), 100, run.forget)
    print(f"image: 256 x 256 RGB        {told(image)}")


def bench_backup(run: Run, folder: Path) -> None:
    """1,000 files of 5 kB with gitignore rules, and the environment."""
    project = folder / "project"
    for number in range(1000):
        path = project / f"p{number % 40}" / f"s{number % 4}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(5000))
    (project / ".gitignore").write_text(
        "*.pyc\n__pycache__/\n/build\ndata/\n*.log\n!keep.log\n**/results/**\n"
    )
    plan = BackupPlan(project, ignore_rules=(".gitignore",))

    def start() -> None:
        environment = EnvironmentCapture(project)
        report = back_up_code(plan, run.outbox, folder, print)
        environment.write(lambda _content: None, report)

    first = timed(start, 1, run.forget)
    later = timed(start, 10, run.forget)
    print(
        f"code:  1,000 files, 5 MB    first {first[0]:.1f} ms; {told(later)} (budget {BACKUP_BUDGET_MS:.0f})"
    )


def main() -> None:
    """Run all of them."""
    folder = Path(tempfile.mkdtemp(prefix="rla-bench-"))
    run = Run(folder)
    try:
        bench_video(run)
        bench_backup(run, folder)
        bench_figure(run)
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
