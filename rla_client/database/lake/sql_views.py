"""SQL views of a database."""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape
from typing import TYPE_CHECKING, Any

from rla_client.database.records.told_fields import ToldField, shown_in

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_ROLE = "nullif(regexp_extract(metric, '@([A-Za-z][A-Za-z0-9_-]*)$', 1), '')"  # like `split_role`


def _told_column(one: ToldField) -> str:
    """SQL of a further column of `runs`."""
    text = f"json_extract_string(told, '$.{one.name}')"
    number = f"TRY_CAST({text} AS DOUBLE)"
    values = {"text": text, "number": number, "moment": f"make_timestamp(CAST({number} * 1e6 AS BIGINT))"}
    return f', {values[one.kind]} AS "{one.name}"'


VIEWS = {
    "runs": """SELECT run, table_name AS "table", idx AS "index", host,
        CASE WHEN state IN ('running', 'stalled') AND updated < {heard} THEN 'unknown'
            ELSE coalesce(state, 'unknown') END AS state,
        coalesce(try_strptime(left(idx, 26), '%Y/%m/%d/%H-%M-%S-%f'),
            make_timestamp(CAST(opened * 1e6 AS BIGINT)))
            AS opened,
        duration_s AS took, time_step AS step, nullif(likely, '') AS metric,
        try_cast(likely_text AS DOUBLE) AS value, from_json(tags, '["VARCHAR"]') AS tags, note,
        nullif(display_name, '') AS name,
        string_split(kinds, ' ') AS kinds, nullif(parent, '') AS parent"""  # noqa: S608 - names of ours
    + "".join(map(_told_column, shown_in("sql")))
    + " FROM ({source})",
    "params": "SELECT run, name, value, number FROM ({source})",
    "last": f"SELECT run, metric, value, text, {_ROLE} AS role FROM ({{source}})",  # noqa: S608 - constants
    "rows": f"""SELECT * FROM (SELECT run, unnest(step) AS step, metric, unnest(value) AS value,
        unnest(text) AS text, {_ROLE} AS role FROM ({{source}})
        WHERE metric <> 'time-step' AND metric NOT LIKE 'time-step@%')
        WHERE value IS NOT NULL OR text IS NOT NULL""",  # noqa: S608 - constants
    "system": """SELECT * FROM (SELECT run, unnest(step) AS time, metric, unnest(value) AS value
        FROM ({source}) WHERE metric <> 'timestamp') WHERE value IS NOT NULL""",
    "files": """SELECT run, kind, path, bytes, make_timestamp(CAST(changed * 1e6 AS BIGINT)) AS changed
        FROM ({source})""",
    "samples": """SELECT run, id, step,
        make_timestamp(TRY_CAST("time" * 1e6 AS BIGINT)) AS logged, name, role, "group", reward, prompt,
        completion, numbers, texts FROM ({source})""",
}  # fmt: skip


def make_views(
    connection: duckdb.DuckDBPyConnection,
    request: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    memory: int,
) -> None:
    """Create the views of the query, then restrict the connection to their files."""
    run, files = connection.execute, request["files"]
    for name in request["views"]:
        stale = "lake_stale_samples" if name == "samples" else "lake_stale"
        connection.register(stale, tables[stale])
        without = f"WHERE run NOT IN (SELECT run FROM {stale})" if tables[stale].num_rows else ""  # noqa: S608
        fresh = tables[f"fresh_{name}"]
        connection.register(f"fresh_{name}", fresh)
        columns = ", ".join(f'"{column}"' for column in fresh.schema.names)
        sources = (
            [f"SELECT {columns} FROM fresh_{name}"]  # noqa: S608 - names of ours
            if fresh.num_rows or not files.get(name)
            else []
        )
        if files.get(name):
            listing = ", ".join(_quoted(escape(path)) for path in files[name])
            sources.append(f"SELECT {columns} FROM read_parquet([{listing}]) {without}")  # noqa: S608
        text = VIEWS[name].format(source=" UNION ALL ".join(sources), heard=float(request["heard"]))
        run(f"CREATE TEMP VIEW {name} AS {text}")
    run("SET arrow_lossless_conversion = true")  # otherwise Arrow gets bits as bytes and times without zone
    run("SET enable_progress_bar = false")
    run(f"SET memory_limit = '{memory >> 20}MiB'")
    run("SET temp_directory = ''")
    paths = [path for found in files.values() for path in found]
    run(f"SET allowed_paths = [{', '.join(map(_quoted, paths))}]")
    run("SET enable_external_access = false")
    run("SET lock_configuration = true")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
