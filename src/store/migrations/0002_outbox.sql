-- Notifications: durable before they are sent, one lane for each receiver, in the order of `id`.
CREATE TABLE outbox (
    id          @serial@,
    key         TEXT NOT NULL UNIQUE,
    receiver    TEXT NOT NULL,
    incident    TEXT NOT NULL,
    sequence    BIGINT NOT NULL,
    event       TEXT NOT NULL,
    class       TEXT NOT NULL,
    severity    TEXT NOT NULL,
    cause_at    BIGINT NOT NULL,
    body        TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    state       TEXT NOT NULL,
    -- On the clock of the database, as are `inserted_at`, `lease_until` and `finished_at`.
    inserted_at BIGINT NOT NULL,
    due_at      BIGINT NOT NULL,
    attempts    BIGINT NOT NULL,
    lease_owner TEXT,
    lease_until BIGINT NOT NULL,
    finished_at BIGINT,
    -- The key of the delivery that a first try put this row into: later tries send the same.
    batch       TEXT,
    -- The incident whose page this row belongs to, when one page lists several.
    group_key   TEXT,
    error       TEXT
);
CREATE INDEX outbox_lane ON outbox (receiver, state, id);
CREATE INDEX outbox_by_incident ON outbox (incident, receiver, sequence);
CREATE INDEX outbox_by_batch ON outbox (batch);
CREATE INDEX outbox_by_group ON outbox (receiver, group_key);
