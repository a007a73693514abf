"""A training process that makes worker processes which log too.

    python forks.py METHOD FOLDER ROWS

METHOD: before (os.fork before the first row), after, fork, spawn, forkserver (multiprocessing), loader
(torch DataLoader with two workers), thread (os.fork while another thread logs).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading

WORKERS = 2


def log(rows: int, who: str) -> None:
    """Log rows 0…n-1."""
    from rla_client import logger

    for seq in range(rows):
        logger.set_time(seq)
        logger.record_tabular("seq", seq)
        logger.record_tabular("who", who)
        logger.dump_tabular()


def by_os_fork(rows: int) -> None:
    """Fork WORKERS times; each child logs and leaves by os._exit, as a killed worker would."""
    children = []
    for _ in range(WORKERS):
        child = os.fork()
        if child == 0:
            log(rows, "worker")
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def by_multiprocessing(method: str, rows: int) -> None:
    """The same through multiprocessing."""
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=log, args=(rows, "worker")) for _ in range(WORKERS)]  # type: ignore[attr-defined]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


def by_loader(rows: int) -> None:
    """A DataLoader whose data set logs in its worker processes."""
    import torch.utils.data

    from rla_client import logger

    class Logging(torch.utils.data.Dataset[int]):  # type: ignore[misc]
        def __len__(self) -> int:
            return WORKERS * rows

        def __getitem__(self, index: int) -> int:
            info = torch.utils.data.get_worker_info()
            assert info is not None
            seq = index // WORKERS
            logger.set_time(seq)
            logger.record_tabular("seq", seq)
            logger.record_tabular("who", "worker")
            logger.dump_tabular()
            return index

    loader = torch.utils.data.DataLoader(Logging(), batch_size=1, num_workers=WORKERS)
    assert sum(1 for _ in loader) == WORKERS * rows


def main() -> None:
    """Log in the parent, make workers, log on."""
    method, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    from rla_client import logger

    logger.configure(folder, ["csv", "tensorboard"])
    parent = threading.Thread(target=log, args=(rows, "parent"))
    if method == "thread":
        parent.start()
        by_os_fork(rows)
        parent.join()
    elif method == "before":
        by_os_fork(rows)
        log(rows, "parent")
    else:
        log(rows, "parent")
        if method == "after":
            by_os_fork(rows)
        elif method == "loader":
            by_loader(rows)
        else:
            by_multiprocessing(method, rows)


if __name__ == "__main__":
    main()
