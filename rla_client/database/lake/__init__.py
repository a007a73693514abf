"""The lake: Parquet files of ended runs beside the database, so that a look at many runs parses no text.

The files of the runs stay the truth. The lake lies in `<data root>/.rla/lake/`, which replication, `du`,
`fsck` and everything that walks the tables pass over; it can be deleted at any time and built again:

    lock                                            held (flock) by the one process that builds
    manifest.json                                   which parts count; whatever it does not name is rubbish
    tables/<table>/<YYYY-MM-DD>-<id>/*.parquet      one part: up to `MAX_RUNS` runs of one table

A part begins with the day in its name and holds whole days, or a piece of a day with many runs. It is written
once and never changed: a run that changed has its part written anew under another id. Its files:

    runs      a row a run: the row of the catalogue, its signature, and `place`, its number in this part
    params    run, name, value (text), number (null where it is none)
    last      run, metric, value, text: the last value of each column of progress.csv
    rows      a row for each run and column of progress.csv: lists `step`, `value`, `text`, an entry a row
    system    the same of system.csv; `step` is the time
    files     run, kind, path, bytes, changed: every file of the run when the part was written

`value` is null where a cell was empty or text, NaN where NaN was recorded; `run` is `<table>/<index>`.
`rows` is ordered by metric and run, in row groups of some 100 runs, so that one metric is read alone.

A run is in the lake under the signature that the catalogue gives it (see `catalogue`): mtime of the log
folder, inode, size, mtime and ctime of progress.csv. Whoever reads a run from the lake compares that first;
a run with another signature is read from its files. So a row that was appended, a tag, a note, a resumed or
removed run is seen at once; what no signature shows is found by `verify`: a file that was rewritten in place.

Everything is written to a temp name, synced and renamed, the manifest last. A manifest or part that cannot
be read is warned about and left out: its runs are read from their files, and the next build replaces it.
"""
