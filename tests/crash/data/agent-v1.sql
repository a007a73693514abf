BEGIN TRANSACTION;
CREATE TABLE done(stream TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE filler(page BLOB);
CREATE TABLE jobs(
  stream TEXT NOT NULL, number INT NOT NULL, offset INT NOT NULL, kind TEXT NOT NULL,
  fields BLOB NOT NULL, PRIMARY KEY(stream, number, offset)) WITHOUT ROWID;
INSERT INTO "jobs" VALUES('stream',1,20,'figure',X'80');
CREATE TABLE outputs(
  stream TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, generation INT NOT NULL,
  size INT NOT NULL, number INT NOT NULL, offset INT NOT NULL, state TEXT NOT NULL,
  intent TEXT NOT NULL DEFAULT '', final INT NOT NULL DEFAULT 0,
  PRIMARY KEY(stream, name)) WITHOUT ROWID;
INSERT INTO "outputs" VALUES('stream','csv','/data/progress.csv',0,9,1,30,'{"rows": 2}','',0);
CREATE TABLE runs(
  run TEXT PRIMARY KEY, updated REAL NOT NULL, live INT NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "runs" VALUES('r',2.0,1,'{"format": 1, "run_id": "r", "table": "t", "index": "i", "user": "u", "host": "h", "pid": 1, "state": "running", "reason": "", "exit_code": null, "signal": null, "opened": 1.0, "last_row": null, "closed": null, "time_step": null, "rows": 2, "lost": 0, "streams": ["stream"], "parent": null, "launch": "", "versions": {"client": "0.1.0"}, "updated": 2.0, "root": "/data", "log_folder": "/data/log", "run_key": "", "replicate": true}');
COMMIT;
