-- The record: incidents, what was believed of them when, the series around them, what people said.
CREATE TABLE incidents (
    id               TEXT PRIMARY KEY,
    source           TEXT NOT NULL,
    watch            TEXT NOT NULL,
    labels           TEXT NOT NULL,
    dependency       TEXT NOT NULL,
    class            TEXT NOT NULL,
    state            TEXT NOT NULL,
    severity         TEXT NOT NULL,
    -- The start as first estimated. It never changes, so a page cut by it stays whole.
    opened_at        BIGINT NOT NULL,
    started_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    ended_at         BIGINT,
    summary          TEXT NOT NULL,
    family           TEXT,
    base_seconds     DOUBLE PRECISION,
    factor           DOUBLE PRECISION,
    client           TEXT,
    excess_requests  DOUBLE PRECISION NOT NULL,
    body             TEXT NOT NULL,
    feedback_genuine BIGINT,
    feedback_class   TEXT,
    feedback_note    TEXT,
    feedback_at      BIGINT
);
CREATE INDEX incidents_by_time ON incidents (opened_at, id);
CREATE INDEX incidents_by_dependency ON incidents (dependency, opened_at, id);
CREATE INDEX incidents_by_class ON incidents (class, opened_at, id);
CREATE INDEX incidents_by_state ON incidents (state, opened_at, id);
CREATE INDEX incidents_by_severity ON incidents (severity, opened_at, id);

CREATE TABLE incident_rules (
    incident  TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    rule      TEXT NOT NULL,
    opened_at BIGINT NOT NULL,
    PRIMARY KEY (incident, rule)
);
CREATE INDEX incident_rules_by_rule ON incident_rules (rule, opened_at, incident);

CREATE TABLE revisions (
    incident TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    at       BIGINT NOT NULL,
    reason   TEXT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (incident, at, reason)
);

CREATE TABLE series (
    incident TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    at       BIGINT NOT NULL,
    body     @bytes@ NOT NULL,
    PRIMARY KEY (incident, kind)
);

CREATE TABLE feedback (
    incident TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    at       BIGINT NOT NULL,
    genuine  BIGINT NOT NULL,
    class    TEXT,
    note     TEXT NOT NULL,
    PRIMARY KEY (incident, at)
);
