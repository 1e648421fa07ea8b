-- Who lives: one row for each replica, stamped on the clock of the database.
CREATE TABLE replicas (
    name         TEXT PRIMARY KEY,
    heartbeat_at BIGINT NOT NULL
);
