"""What is taken of the lists that a master gives."""

from __future__ import annotations

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.transfer.remote_items import remote_files
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.transfer.tally import Tally

RUN = b"log/tab/2026/12/01/02-35-25-891771_192.0.2.2_&s=1"
FILE, FOLDER = RemoteStat(3, 1), RemoteStat(0, 1, "folder")


class Bucket:
    """Lists of keys some of which lie below others."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = keys

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        below = [key.removeprefix(path + b"/") for key in self.keys if key.startswith(path + b"/")]
        files = [(name, FILE) for name in below if b"/" not in name]
        return files + [
            (name, FOLDER) for name in {name.partition(b"/")[0] for name in below if b"/" in name}
        ]


def test_of_a_file_and_a_folder_of_one_name_what_the_name_looks_like_is_taken() -> None:
    """A foreign object `progress.csv/x` made a folder of the rows, and the file was refused as newer here."""
    foreign = [b"log/tab", b"log/tab/2026", RUN, RUN + b"/progress.csv/x", RUN + b"/tb"]
    ours = [RUN + b"/progress.csv", RUN + b"/tb/events/one", RUN + b"/run.json"]
    tally = Tally()
    found = [path for path, _ in remote_files(Bucket(*foreign, *ours), ItemSelection(kinds=("log",)), tally)]
    assert sorted(found) == sorted(ours)
    assert [said.partition(": ")[0] for said in tally.failed] == [
        path.decode() for path in (b"log/tab", b"log/tab/2026", RUN, RUN + b"/progress.csv", RUN + b"/tb")
    ]
