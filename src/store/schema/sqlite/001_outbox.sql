-- Times are integer microseconds since 1970. Every default and every check is
-- here so that a plain INSERT from any language is as good as the library's.
CREATE TABLE postroom_outbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE
		DEFAULT (
			printf('%08x-%04x-7%s-%s%s-%s',
				CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 16,
				CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) & 65535,
				substr(lower(hex(randomblob(2))), 2),
				substr('89ab', 1 + (random() & 3), 1),
				substr(lower(hex(randomblob(2))), 2),
				lower(hex(randomblob(6)))))
		CONSTRAINT "id: a UUID" CHECK (id GLOB '????????-????-????-????-????????????'),
	namespace TEXT NOT NULL DEFAULT 'default'
		CONSTRAINT "namespace: 1 to 255 bytes without control characters" CHECK (namespace = 'default'
			OR (length(CAST(namespace AS BLOB)) BETWEEN 1 AND 255
				AND namespace NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
				AND instr(namespace, char(0)) = 0)),
	topic TEXT NOT NULL
		CONSTRAINT "topic: 1 to 255 bytes without control characters" CHECK (length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
			AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
			AND instr(topic, char(0)) = 0),
	tenant_id TEXT
		CONSTRAINT "tenant_id: a UUID in lower case" CHECK (length(tenant_id) = 36
			AND replace(tenant_id, '-', '') NOT GLOB '*[^0-9a-f]*'
			AND tenant_id GLOB '????????-????-????-????-????????????'
			AND length(replace(tenant_id, '-', '')) = 32),
	key TEXT
		CONSTRAINT "key: 1 to 1024 bytes" CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024 AND instr(key, char(0)) = 0),
	dedupe_key TEXT
		CONSTRAINT "dedupe_key: 1 to 512 bytes" CHECK (length(CAST(dedupe_key AS BLOB)) BETWEEN 1 AND 512 AND instr(dedupe_key, char(0)) = 0),
	correlation_id TEXT
		CONSTRAINT "correlation_id: 1 to 255 bytes" CHECK (length(CAST(correlation_id AS BLOB)) BETWEEN 1 AND 255 AND instr(correlation_id, char(0)) = 0),
	payload TEXT NOT NULL
		CONSTRAINT "payload: valid JSON, 64 MiB at most" CHECK (json_valid(payload) AND instr(payload, char(0)) = 0
			AND length(CAST(payload AS BLOB)) <= 67108864),
	body BLOB
		CONSTRAINT "body: 64 MiB at most" CHECK (length(body) <= 67108864),
	content_type TEXT NOT NULL DEFAULT 'application/json'
		CONSTRAINT "content_type: 1 to 255 bytes" CHECK (length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(content_type, char(0)) = 0),
	headers TEXT NOT NULL DEFAULT '{}'
		CONSTRAINT "headers: a JSON object, 64 KiB at most" CHECK (json_valid(headers) AND json_type(headers) IS 'object'
			AND instr(headers, char(0)) = 0 AND instr(replace(headers, '\\', '  '), '\u0000') = 0
			AND length(CAST(headers AS BLOB)) <= 65536),
	status TEXT NOT NULL DEFAULT 'pending'
		CONSTRAINT "status: pending, processing, delivered or dead" CHECK (status IN ('pending', 'processing', 'delivered', 'dead')),
	attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
	claims INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0),
	next_attempt_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	locked_by TEXT,
	locked_until INTEGER,
	last_attempt_at INTEGER,
	last_error TEXT,
	created_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	updated_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	delivered_at INTEGER,
	-- How it is claimed: 0 in its turn, by seq, or, if it is delayed or has a head
	-- start, by its due time; 1 by its due time; 2 not yet, because an earlier one of
	-- its key holds it back; 3 as 1, it was dead; 4 in its turn.
	apart INTEGER NOT NULL DEFAULT 0,

	-- E4
	CONSTRAINT "dedupe_key: begins with the tenant_id and a slash" CHECK (tenant_id IS NULL OR dedupe_key IS NULL
		OR lower(substr(dedupe_key, 1, 37)) = tenant_id || '/'
		OR lower(substr(dedupe_key, 1, 33)) = replace(tenant_id, '-', '') || '/'),
	CONSTRAINT "locked_by, locked_until: set while processing, and only then" CHECK ((status = 'processing') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (locked_until IS NULL)),
	-- E5: what jsonb refuses although json_valid() takes it: \u0000 and halves of
	-- surrogate pairs. Escaped backslashes are blanked first, and six blanks put
	-- in front, so that "the six characters before" always exist.
	CONSTRAINT "payload: no \u0000 and no half of a surrogate pair" CHECK (instr(payload, '\u') = 0 OR (
		instr(replace(payload, '\\', '  '), '\u0000') = 0
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??[^\]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\[^u]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\u[^dD]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\u[dD][^c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*[^\]?????\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\[^u]????\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\u[^dD]???\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\u[dD][^89abAB]??\u[dD][c-fC-F]*'))
) STRICT;

-- E3
CREATE UNIQUE INDEX postroom_outbox_dedupe
	ON postroom_outbox (namespace, topic, dedupe_key) WHERE dedupe_key IS NOT NULL;
-- The three arms of a claim. What is held back by its key is in none of them.
CREATE INDEX postroom_outbox_turn
	ON postroom_outbox (seq) WHERE status = 'pending'
		AND (apart = 4 OR (apart = 0 AND next_attempt_at = created_at));
CREATE INDEX postroom_outbox_due
	ON postroom_outbox (next_attempt_at, seq) WHERE status = 'pending'
		AND (apart IN (1, 3) OR (apart = 0 AND next_attempt_at <> created_at));
CREATE INDEX postroom_outbox_leased
	ON postroom_outbox (locked_until) WHERE status = 'processing';
-- The order of a key (D6): those that the order of seq alone does not keep in line.
-- It is small, because what only waits for its turn since it was enqueued is not in it.
CREATE INDEX postroom_outbox_key
	ON postroom_outbox (key, topic, namespace) WHERE key IS NOT NULL AND delivered_at IS NULL
		AND apart <> 3 AND (claims > 0 OR apart IN (2, 4) OR (apart = 0 AND next_attempt_at < created_at));
-- Who waits behind others of its key.
CREATE INDEX postroom_outbox_held
	ON postroom_outbox (key, topic, namespace) WHERE apart = 2;
-- Delayed: not in the order of its key before its time.
CREATE INDEX postroom_outbox_delayed
	ON postroom_outbox (next_attempt_at) WHERE key IS NOT NULL
		AND apart = 0 AND next_attempt_at > created_at;
-- Whose key may be blocked.
CREATE INDEX postroom_outbox_grave
	ON postroom_outbox (key, topic, namespace) WHERE key IS NOT NULL AND apart = 3;
-- Purging what has been delivered, by age.
CREATE INDEX postroom_outbox_delivered
	ON postroom_outbox (delivered_at) WHERE status = 'delivered';
-- Listing the dead, newest first.
CREATE INDEX postroom_outbox_dead
	ON postroom_outbox (seq) WHERE status = 'dead';

-- Dedupe keys whose messages have gone.
CREATE TABLE postroom_dedupe (
	namespace TEXT NOT NULL,
	topic TEXT NOT NULL,
	dedupe_key TEXT NOT NULL,
	id TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (namespace, topic, dedupe_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX postroom_dedupe_age ON postroom_dedupe (created_at);

CREATE TRIGGER postroom_outbox_remembered BEFORE INSERT ON postroom_outbox
WHEN NEW.dedupe_key IS NOT NULL AND EXISTS (SELECT 1 FROM postroom_dedupe
	WHERE namespace = NEW.namespace AND topic = NEW.topic AND dedupe_key = NEW.dedupe_key)
BEGIN
	SELECT RAISE(IGNORE);
END;

-- Every message as it is now.
CREATE VIEW postroom_messages AS
SELECT id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body,
	content_type, headers, status, attempts, claims, next_attempt_at, locked_by, locked_until,
	last_attempt_at, last_error, created_at, updated_at, delivered_at
FROM postroom_outbox;

-- What a handler has done, is doing, or has been told to do: one row for each event or
-- command and handler (N1). `seq`, `claims`, `apart` and the columns of a lease are as in the outbox.
CREATE TABLE postroom_inbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL
		CONSTRAINT "id: 1 to 1024 bytes" CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 1024 AND instr(id, char(0)) = 0),
	handler_name TEXT NOT NULL
		CONSTRAINT "handler_name: 1 to 255 bytes without control characters" CHECK (length(CAST(handler_name AS BLOB)) BETWEEN 1 AND 255
			AND handler_name NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
			AND instr(handler_name, char(0)) = 0),
	-- Of a claim a handler's jobs are a namespace of their own.
	namespace TEXT GENERATED ALWAYS AS (handler_name) VIRTUAL,
	topic TEXT
		CONSTRAINT "topic: 1 to 255 bytes without control characters" CHECK (topic IS NULL
			OR (length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
				AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
				AND instr(topic, char(0)) = 0)),
	key TEXT
		CONSTRAINT "key: 1 to 1024 bytes" CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024 AND instr(key, char(0)) = 0),
	status TEXT NOT NULL DEFAULT 'pending'
		CONSTRAINT "status: pending, active, completed or dead" CHECK (status IN ('pending', 'active', 'completed', 'dead')),
	payload TEXT
		CONSTRAINT "payload: valid JSON, 64 MiB at most" CHECK (payload IS NULL OR (json_valid(payload) AND instr(payload, char(0)) = 0
			AND length(CAST(payload AS BLOB)) <= 67108864)),
	body BLOB
		CONSTRAINT "body: 64 MiB at most" CHECK (length(body) <= 67108864),
	content_type TEXT NOT NULL DEFAULT 'application/json'
		CONSTRAINT "content_type: 1 to 255 bytes" CHECK (length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255 AND instr(content_type, char(0)) = 0),
	headers TEXT NOT NULL DEFAULT '{}'
		CONSTRAINT "headers: a JSON object, 64 KiB at most" CHECK (json_valid(headers) AND json_type(headers) IS 'object'
			AND instr(headers, char(0)) = 0 AND instr(replace(headers, '\\', '  '), '\u0000') = 0
			AND length(CAST(headers AS BLOB)) <= 65536),
	checkpoint TEXT
		CONSTRAINT "checkpoint: valid JSON" CHECK (checkpoint IS NULL OR (json_valid(checkpoint) AND instr(checkpoint, char(0)) = 0)),
	steps TEXT NOT NULL DEFAULT '{}'
		CONSTRAINT "steps: a JSON object" CHECK (json_valid(steps) AND json_type(steps) IS 'object'),
	attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
	claims INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0),
	next_attempt_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	locked_by TEXT,
	locked_until INTEGER,
	last_attempt_at INTEGER,
	last_error TEXT,
	created_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	-- Since when it is what it is; retention goes by it.
	updated_at INTEGER NOT NULL
		DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000),
	processed_at INTEGER,
	-- In its turn from the beginning: what has a key is in the index of keys, where the
	-- arrivals behind it find it.
	apart INTEGER NOT NULL DEFAULT 4,

	UNIQUE (id, handler_name),
	CONSTRAINT "key: only with a topic" CHECK (key IS NULL OR topic IS NOT NULL),
	CONSTRAINT "locked_by, locked_until: set while active, and only then" CHECK ((status = 'active') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (locked_until IS NULL)),
	CONSTRAINT "payload: no \u0000 and no half of a surrogate pair" CHECK (payload IS NULL OR instr(payload, '\u') = 0 OR (
		instr(replace(payload, '\\', '  '), '\u0000') = 0
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??[^\]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\[^u]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\u[^dD]*'
		AND replace(payload, '\\', '  ') NOT GLOB '*\u[dD][89abAB]??\u[dD][^c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*[^\]?????\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\[^u]????\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\u[^dD]???\u[dD][c-fC-F]*'
		AND '      ' || replace(payload, '\\', '  ') NOT GLOB '*\u[dD][^89abAB]??\u[dD][c-fC-F]*'))
) STRICT;

-- The arms of a claim and the order of a key, as in the outbox.
CREATE INDEX postroom_inbox_turn
	ON postroom_inbox (seq) WHERE status = 'pending'
		AND (apart = 4 OR (apart = 0 AND next_attempt_at = created_at));
CREATE INDEX postroom_inbox_due
	ON postroom_inbox (next_attempt_at, seq) WHERE status = 'pending'
		AND (apart IN (1, 3) OR (apart = 0 AND next_attempt_at <> created_at));
CREATE INDEX postroom_inbox_leased
	ON postroom_inbox (locked_until) WHERE status = 'active';
CREATE INDEX postroom_inbox_key
	ON postroom_inbox (key, topic, namespace) WHERE key IS NOT NULL AND processed_at IS NULL
		AND apart <> 3 AND (claims > 0 OR apart IN (2, 4) OR (apart = 0 AND next_attempt_at < created_at));
CREATE INDEX postroom_inbox_held
	ON postroom_inbox (key, topic, namespace) WHERE apart = 2;
CREATE INDEX postroom_inbox_delayed
	ON postroom_inbox (next_attempt_at) WHERE key IS NOT NULL
		AND apart = 0 AND next_attempt_at > created_at;
CREATE INDEX postroom_inbox_grave
	ON postroom_inbox (key, topic, namespace) WHERE key IS NOT NULL AND apart = 3;
-- N4
CREATE INDEX postroom_inbox_completed
	ON postroom_inbox (updated_at) WHERE status = 'completed';
CREATE INDEX postroom_inbox_dead
	ON postroom_inbox (seq) WHERE status = 'dead';
