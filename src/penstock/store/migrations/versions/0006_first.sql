CREATE TABLE {schema}meta (name TEXT NOT NULL, value TEXT NOT NULL, CONSTRAINT pk_meta PRIMARY KEY (name));

CREATE TABLE {schema}leases (
  pipeline TEXT NOT NULL, token TEXT, host TEXT NOT NULL, pid BIGINT NOT NULL, boot TEXT NOT NULL,
  started TEXT NOT NULL, epoch BIGINT NOT NULL, heartbeat BIGINT NOT NULL, expires BIGINT NOT NULL,
  CONSTRAINT pk_leases PRIMARY KEY (pipeline)
);

CREATE TABLE {schema}streams (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, number BIGINT NOT NULL, slice_id TEXT, mark TEXT, content TEXT,
  version BIGINT NOT NULL, rows BIGINT NOT NULL, bytes BIGINT NOT NULL, outcome TEXT, last_rows BIGINT NOT NULL,
  moved_at BIGINT, intent TEXT, reset_wanted BOOLEAN NOT NULL, stopped TEXT, compared TEXT,
  CONSTRAINT pk_streams PRIMARY KEY (pipeline, stream),
  CONSTRAINT fk_streams_leases FOREIGN KEY (pipeline) REFERENCES {schema}leases (pipeline)
);

CREATE TABLE {schema}contents (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, hash TEXT NOT NULL, content TEXT NOT NULL,
  CONSTRAINT pk_contents PRIMARY KEY (pipeline, stream, hash),
  CONSTRAINT fk_contents_streams FOREIGN KEY (pipeline, stream) REFERENCES {schema}streams (pipeline, stream)
);

CREATE TABLE {schema}intents (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, id TEXT NOT NULL, number BIGINT NOT NULL, previous TEXT NOT NULL,
  kind TEXT NOT NULL, after TEXT, upto TEXT, content TEXT NOT NULL, plan TEXT NOT NULL, spool TEXT NOT NULL,
  seal TEXT, intended_at BIGINT NOT NULL, run TEXT NOT NULL, epoch BIGINT NOT NULL,
  CONSTRAINT pk_intents PRIMARY KEY (pipeline, stream),
  CONSTRAINT fk_intents_streams FOREIGN KEY (pipeline, stream) REFERENCES {schema}streams (pipeline, stream)
);

CREATE TABLE {schema}history (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, version BIGINT NOT NULL, at BIGINT NOT NULL, reason TEXT NOT NULL,
  number BIGINT NOT NULL, slice_id TEXT, mark TEXT, content TEXT, rows BIGINT NOT NULL, bytes BIGINT NOT NULL,
  outcome TEXT, total_rows BIGINT NOT NULL, total_bytes BIGINT NOT NULL, total_outcome TEXT, run TEXT,
  CONSTRAINT pk_history PRIMARY KEY (pipeline, stream, version),
  CONSTRAINT fk_history_streams FOREIGN KEY (pipeline, stream) REFERENCES {schema}streams (pipeline, stream)
);

CREATE TABLE {schema}runs (
  pipeline TEXT NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, started BIGINT NOT NULL, ended BIGINT,
  status TEXT NOT NULL, has_more BOOLEAN NOT NULL, continues TEXT, totals TEXT NOT NULL, verb TEXT NOT NULL,
  CONSTRAINT pk_runs PRIMARY KEY (pipeline, number),
  CONSTRAINT fk_runs_leases FOREIGN KEY (pipeline) REFERENCES {schema}leases (pipeline),
  CONSTRAINT uq_runs_pipeline_id UNIQUE (pipeline, id)
);

CREATE TABLE {schema}progress (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, run TEXT NOT NULL, progress TEXT NOT NULL,
  CONSTRAINT pk_progress PRIMARY KEY (pipeline, stream),
  CONSTRAINT fk_progress_leases FOREIGN KEY (pipeline) REFERENCES {schema}leases (pipeline)
);

CREATE INDEX ix_progress_pipeline_run ON {schema}progress (pipeline, run);

CREATE TABLE {schema}failures (
  pipeline TEXT NOT NULL, stream TEXT NOT NULL, what TEXT NOT NULL, safe TEXT NOT NULL, next_step TEXT NOT NULL,
  at BIGINT NOT NULL, since BIGINT NOT NULL, times BIGINT NOT NULL,
  CONSTRAINT pk_failures PRIMARY KEY (pipeline, stream)
);

CREATE TABLE {schema}looks (
  pipeline TEXT NOT NULL, streams TEXT NOT NULL, at BIGINT NOT NULL,
  CONSTRAINT pk_looks PRIMARY KEY (pipeline, streams)
);

CREATE TABLE {schema}days (
  pipeline TEXT NOT NULL, day TEXT NOT NULL, runs BIGINT NOT NULL, idle BIGINT NOT NULL, failed BIGINT NOT NULL,
  rows BIGINT NOT NULL, bytes BIGINT NOT NULL, last BIGINT NOT NULL,
  CONSTRAINT pk_days PRIMARY KEY (pipeline, day)
);
