from __future__ import annotations

import json
from pathlib import Path

from rla_client.database.resumed_parameters import resumed_with

PROGRAM = """
import sys
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure('t', {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': ['nothing']}},
    sys.argv[1], code_root=sys.argv[1], run_id='one', resume='allow')
exp_manager.set_hyper_param(lr=float(sys.argv[2]), net={'depth': 2})
exp_manager.log_files_gen()
time_step_holder.set_time(7)
logger.record_tabular('x', 1)
logger.dump_tabular()
logger.flush(60)
def diverge(what):
    raise ValueError('loss is \\x1b[31m' + what)
diverge('nan, lr ' + sys.argv[2])
"""


def test_broken_files_of_resumes_are_passed_over(tmp_path: Path) -> None:
    good = {"time_step": 5, "time": 1.0, "changed": {"lr": [1, 2]}, "hyper_param": {"lr": 2}}
    for number, content in ((10, json.dumps(good)), (2, "{"), (3, "[]"), (4, '{"changed": 1}')):
        (tmp_path / f"parameter.resumed-{number}.json").write_text(content)
    assert [one["file"] for one in resumed_with(str(tmp_path))] == ["parameter.resumed-10.json"]
