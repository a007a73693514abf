"""The size of a torch zip, known before it is written."""

from __future__ import annotations

import io

import pytest

from rla_client.contract.checkpoint.torch_zip import TorchZip, zip_bytes


@pytest.mark.parametrize("sizes", [(0,), (1, 63, 64), (100, 0, 12345), (1 << 20,), tuple(range(50))])
def test_the_size_is_that_of_the_file(sizes: tuple[int, ...]) -> None:
    records = [(f"data/{number}" * (1 + number % 3), size) for number, size in enumerate(sizes)]
    file = io.BytesIO()
    with TorchZip(file) as zipped:
        for name, size in records:
            zipped.add(name, size, [bytes(size)])
    assert zip_bytes(records) == len(file.getvalue())


class _Counted(io.RawIOBase):
    """A file whose content is not kept."""

    def __init__(self) -> None:
        self.at = self.size = 0

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def write(self, data: object) -> int:
        count = memoryview(data).nbytes  # type: ignore[arg-type]
        self.at += count
        self.size = max(self.size, self.at)
        return count


@pytest.mark.parametrize("sizes", [((1 << 30) - 1,), (1 << 30,), (1 << 31, 5), (5, 3 << 30, 7)])
def test_the_size_of_large_ones(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zipfile.crc32", lambda _data, before=0: before)  # some seconds each
    block = memoryview(bytes(1 << 24))
    file = _Counted()
    with TorchZip(file) as zipped:  # type: ignore[arg-type]
        for number, size in enumerate(sizes):
            whole, rest = divmod(size, len(block))
            zipped.add(f"data/{number}", size, [*([block] * whole), block[:rest]])
    assert zip_bytes([(f"data/{number}", size) for number, size in enumerate(sizes)]) == file.size
