"""docs/reference/api.md names everything that users call, and nothing that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import rla_agent
import rla_client
from rla_client import compat, exp_manager, integrations, logger, time_step_holder
from rla_client.compat.rla_names import RLA_NAMES
from rla_client.manager import ExpManager

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason="no checkout: the installed wheel is tested")
# attributes that scripts written for RLA read; their calls are in the reference
INTERNAL = {
    "archive_content", "archive_kind", "config", "custom_data", "data_root", "dl_framework",
    "hyparameter_dir", "ignore_file_path", "info", "ipaddr", "is_master_node", "last_record_fph_time",
    "last_time_step", "loaded_record", "log_callback_fn", "log_name_format_version", "max_to_keep",
    "of_run", "private_config", "project_root", "record_date", "resume_mode", "run", "run_file", "run_id",
    "save_archive", "serialize_object_and_save", "task_table_name", "time_step_holder",
    "update_log_files_location", "add_summary_to_logger", "task_name", "root", "writer",
}  # fmt: skip


def words() -> set[str]:
    return set(re.findall(r"\w+", REFERENCE.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "names",
    [
        {*rla_client.__all__, *RLA_NAMES},
        set(logger.__all__),
        {name for name in dir(time_step_holder) if not name.startswith("_")}
        - {"config", "was_set", "clear", "count", "put", "follow", "take_over", "leaders"},
        {name for name in dir(exp_manager) if not name.startswith("_")} - INTERNAL,
    ],
    ids=["rla_client", "logger", "time_step_holder", "exp_manager"],
)
def test_every_public_name_is_in_the_reference(names: set[str]) -> None:
    assert len(names) > 3
    assert names - words() == set()


def test_what_the_tables_of_the_front_doors_name_exists() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    doors = {"logger": logger, "time_step_holder": time_step_holder, "exp_manager": ExpManager()}
    for door, owner in doors.items():
        section = re.search(rf"^## `{door}`.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
        assert section is not None
        cells = re.findall(r"^\| (.+?) \|", section[0], re.MULTILINE)
        named = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
        assert named
        assert {name for name in named if not hasattr(owner, name)} == set()


@pytest.mark.parametrize("name", [one.name for one in pkgutil.iter_modules(integrations.__path__)])
def test_each_integration_is_in_the_reference_and_in_a_how_to(name: str) -> None:
    docs, path = REFERENCE.parents[1], f"rla_client.integrations.{name}"
    assert path in (docs / "reference" / "api" / "integrations.md").read_text(encoding="utf-8")
    assert any(path in page.read_text(encoding="utf-8") for page in (docs / "how-to").glob("*.md"))


def test_the_front_door_has_few_names_and_all_others_are_in_compat() -> None:
    assert sorted(dir(rla_client)) == sorted([*rla_client.__all__, "__version__"])
    assert len(rla_client.__all__) <= 18  # half of them are values for `log`
    for name in RLA_NAMES:
        assert getattr(rla_client, name) is getattr(compat, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = rla_client.nothing
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = compat.nothing


PACKAGES = [
    package.name
    for top in (rla_client, rla_agent)
    for package in pkgutil.walk_packages(top.__path__, f"{top.__name__}.")
    if package.ispkg
]


@pytest.mark.parametrize("package", ["rla_client", "rla_agent", *PACKAGES])
def test_every_name_that_a_package_offers_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []
