BEGIN TRANSACTION;
CREATE TABLE done(stream TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
INSERT INTO "done" VALUES('s0',2.0);
CREATE TABLE filler(page BLOB);
CREATE TABLE firings(
  stream TEXT NOT NULL, number INT NOT NULL, offset INT NOT NULL, rule TEXT NOT NULL, run TEXT NOT NULL,
  fields TEXT NOT NULL, PRIMARY KEY(stream, number, offset, rule)) WITHOUT ROWID;
CREATE TABLE jobs(
  stream TEXT NOT NULL, number INT NOT NULL, offset INT NOT NULL, kind TEXT NOT NULL,
  fields BLOB NOT NULL, PRIMARY KEY(stream, number, offset)) WITHOUT ROWID;
INSERT INTO "jobs" VALUES('s1',3,77,'figure',X'806669656C6473');
CREATE TABLE outputs(
  stream TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, generation INT NOT NULL,
  size INT NOT NULL, number INT NOT NULL, offset INT NOT NULL, state TEXT NOT NULL,
  intent TEXT NOT NULL DEFAULT '', final INT NOT NULL DEFAULT 0,
  PRIMARY KEY(stream, name)) WITHOUT ROWID;
INSERT INTO "outputs" VALUES('s1','csv','/data/progress.csv',2,100,3,400,'{"rows": 5}','',0);
CREATE TABLE runs(
  run TEXT PRIMARY KEY, updated REAL NOT NULL, live INT NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "runs" VALUES('r',1.0,1,'{"format": 1, "run_id": "r", "table": "t", "index": "2026/11/21/09-30-01-000001_10.0.0.5_&", "user": "u", "host": "h", "pid": 1, "state": "running", "reason": "", "exit_code": null, "signal": null, "opened": 1.0, "reopened": null, "ran_before_s": 0.0, "last_row": null, "closed": null, "time_step": null, "rows": 0, "lost": 0, "damaged_bytes": 0, "streams": [], "config": null, "parent": null, "launch": "", "versions": {"client": "0.1.0"}, "updated": 2.0, "root": "/data", "log_folder": "/data/log/t/2026/11/21/09-30-01-000001_10.0.0.5_&"}');
COMMIT;
