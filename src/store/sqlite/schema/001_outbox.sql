-- compatible-with: 1
-- Times are integer microseconds since 1970. Every default and every check is
-- here so that a plain INSERT from any language is as good as the library's.
CREATE TABLE postroom_outbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT
		CONSTRAINT "seq: positive" CHECK (seq > 0),
	-- As 32 hex digits or with hyphens: frameworks write either. Readers get hyphens and lower case.
	id TEXT NOT NULL UNIQUE
		DEFAULT (
			printf('%08x-%04x-7%s-%s%s-%s',
				CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 16,
				CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) & 65535,
				substr(lower(hex(randomblob(2))), 2),
				substr('89ab', 1 + (random() & 3), 1),
				substr(lower(hex(randomblob(2))), 2),
				lower(hex(randomblob(6)))))
		CONSTRAINT "id: a UUID" CHECK ((id GLOB '????????-????-????-????-????????????' OR length(id) = 32)
			AND length(replace(id, '-', '')) = 32 AND instr(id, char(0)) = 0
			AND (replace(id, '-', '') NOT GLOB '*[^0-9a-f]*'
				OR replace(id, '-', '') NOT GLOB '*[^0-9A-F]*')),
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
		CONSTRAINT "tenant_id: a UUID" CHECK ((tenant_id GLOB '????????-????-????-????-????????????' OR length(tenant_id) = 32)
			AND length(replace(tenant_id, '-', '')) = 32 AND instr(tenant_id, char(0)) = 0
			AND (replace(tenant_id, '-', '') NOT GLOB '*[^0-9a-f]*'
				OR replace(tenant_id, '-', '') NOT GLOB '*[^0-9A-F]*')),
	key TEXT
		CONSTRAINT "key: 1 to 1024 bytes" CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024 AND instr(key, char(0)) = 0),
	dedupe_key TEXT
		CONSTRAINT "dedupe_key: 1 to 512 bytes" CHECK (length(CAST(dedupe_key AS BLOB)) BETWEEN 1 AND 512 AND instr(dedupe_key, char(0)) = 0),
	correlation_id TEXT
		CONSTRAINT "correlation_id: 1 to 255 bytes without control characters" CHECK (length(CAST(correlation_id AS BLOB)) BETWEEN 1 AND 255
			AND correlation_id NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
			AND instr(correlation_id, char(0)) = 0),
	payload TEXT NOT NULL
		CONSTRAINT "payload: valid JSON, 64 MiB at most" CHECK (json_valid(payload) AND instr(payload, char(0)) = 0
			AND length(CAST(payload AS BLOB)) <= 67108864),
	body BLOB
		CONSTRAINT "body: 64 MiB at most" CHECK (length(body) <= 67108864),
	-- If set, payload and body are in this row of postroom_content.
	content INTEGER,
	content_type TEXT NOT NULL DEFAULT 'application/json'
		CONSTRAINT "content_type: 1 to 255 bytes without control characters" CHECK (content_type = 'application/json'
			OR (length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255
				AND content_type NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
				AND instr(content_type, char(0)) = 0)),
	headers TEXT NOT NULL DEFAULT '{}'
		-- Control characters are escaped in JSON. Escaped backslashes are removed first.
		CONSTRAINT "headers: strings without control characters, 64 KiB at most" CHECK (headers = '{}'
			OR (json_valid(headers) AND json_type(headers) IS 'object'
				AND length(CAST(headers AS BLOB)) <= 65536
				AND instr(headers, char(0)) = 0 AND instr(headers, char(127)) = 0
				AND (instr(headers, '\') = 0
					OR (replace(headers, '\\', '') NOT GLOB '*\[bfnrt]*'
						AND replace(headers, '\\', '') NOT GLOB '*\u00[01]*'
						AND replace(headers, '\\', '') NOT GLOB '*\u007[fF]*')))),
	status TEXT NOT NULL DEFAULT 'pending'
		CONSTRAINT "status: pending, processing, delivered or dead" CHECK (status IN ('pending', 'processing', 'delivered', 'dead')),
	attempts INTEGER NOT NULL DEFAULT 0
		CONSTRAINT "attempts: 0 to 1000000" CHECK (attempts BETWEEN 0 AND 1000000),
	claims INTEGER NOT NULL DEFAULT 0
		CONSTRAINT "claims: not negative" CHECK (claims >= 0),
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
	-- How a pending row is claimed. new: by seq, or by its due time if it is delayed or has a
	-- head start; ready: by seq; scheduled: by its due time; held: not yet, because an earlier
	-- message of its key is unfinished; dead: it became a dead letter (by its due time if it is
	-- pending again).
	state TEXT NOT NULL DEFAULT 'new'
		CONSTRAINT "state: new, scheduled, held, dead or ready" CHECK (state IN ('new', 'scheduled', 'held', 'dead', 'ready')),

	-- E4
	CONSTRAINT "dedupe_key: begins with the tenant_id and a slash" CHECK (tenant_id IS NULL OR dedupe_key IS NULL
		OR lower(substr(dedupe_key, 1, 33)) = lower(replace(tenant_id, '-', '')) || '/'
		OR (dedupe_key GLOB '????????-????-????-????-????????????/*'
			AND lower(replace(substr(dedupe_key, 1, 36), '-', '')) = lower(replace(tenant_id, '-', '')))),
	CONSTRAINT "locked_by, locked_until: set while processing, and only then" CHECK ((status = 'processing') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (locked_until IS NULL)),
	-- Between 1970 and 9999, as microseconds.
	CONSTRAINT "a time between 1970 and 9999" CHECK (
		next_attempt_at BETWEEN 0 AND 253402300799999999
		AND created_at BETWEEN 0 AND 253402300799999999
		AND updated_at BETWEEN 0 AND 253402300799999999
		AND (locked_until IS NULL OR locked_until BETWEEN 0 AND 253402300799999999)
		AND (last_attempt_at IS NULL OR last_attempt_at BETWEEN 0 AND 253402300799999999)
		AND (delivered_at IS NULL OR delivered_at BETWEEN 0 AND 253402300799999999)),
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

-- The payload and body of messages and events above 256 KiB (PR_LARGE_BYTES). SQLite rewrites a row
-- as a whole at each UPDATE. A claim, renewal, settle or retry must not load large content, so the
-- content has its own row, which is written and deleted, and never updated.
CREATE TABLE postroom_content (
	number INTEGER PRIMARY KEY,
	size INTEGER NOT NULL, -- of both, in bytes
	payload TEXT,
	body BLOB
) STRICT;

-- E3
CREATE UNIQUE INDEX postroom_outbox_dedupe
	ON postroom_outbox (namespace, topic, dedupe_key) WHERE dedupe_key IS NOT NULL;
-- The three claim paths. Held messages are in none of them.
CREATE INDEX postroom_outbox_ready
	ON postroom_outbox (seq) WHERE status = 'pending'
		AND (state = 'ready' OR (state = 'new' AND next_attempt_at = created_at));
CREATE INDEX postroom_outbox_due
	ON postroom_outbox (next_attempt_at, seq) WHERE status = 'pending'
		AND (state IN ('scheduled', 'dead') OR (state = 'new' AND next_attempt_at <> created_at));
CREATE INDEX postroom_outbox_leased
	ON postroom_outbox (locked_until) WHERE status = 'processing';
-- The order of a key (D6): those that the order of seq alone does not keep in line.
-- It is small, because new messages that wait behind others are not in it.
CREATE INDEX postroom_outbox_key
	ON postroom_outbox (key, topic, namespace) WHERE key IS NOT NULL AND delivered_at IS NULL
		AND state <> 'dead' AND (claims > 0 OR state IN ('held', 'ready') OR (state = 'new' AND next_attempt_at < created_at));
-- Messages held behind others of their key.
CREATE INDEX postroom_outbox_held
	ON postroom_outbox (key, topic, namespace) WHERE state = 'held';
-- Delayed: not in the order of its key before its time.
CREATE INDEX postroom_outbox_delayed
	ON postroom_outbox (next_attempt_at) WHERE key IS NOT NULL
		AND state = 'new' AND next_attempt_at > created_at;
-- Dead letters, which may block their key.
CREATE INDEX postroom_outbox_blocking
	ON postroom_outbox (key, topic, namespace) WHERE key IS NOT NULL AND state = 'dead';
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

-- Rules that no CHECK can express. Only an INSERT is checked: the program itself writes these columns later.
-- A seq that is not given by hand is below zero here. The highest possible one would leave
-- no number for the next row. A lease without a worker, or a fencing token without room to
-- grow, would keep the row from being claimed.
CREATE TRIGGER postroom_outbox_new BEFORE INSERT ON postroom_outbox
WHEN NEW.seq > 1000000000000000 OR NEW.claims > 1000000 OR NEW.status = 'processing'
	OR (NEW.status = 'delivered') <> (NEW.delivered_at IS NOT NULL)
	OR (NEW.state = 'held' AND NEW.key IS NULL) OR NEW.content IS NOT NULL
BEGIN
	SELECT RAISE(ABORT, 'postroom_outbox: seq, claims, status, locked_by, delivered_at, content or state is not that of a new row');
END;

CREATE TRIGGER postroom_outbox_headers BEFORE INSERT ON postroom_outbox
WHEN NEW.headers <> '{}' AND CASE WHEN json_valid(NEW.headers) THEN
	EXISTS (SELECT 1 FROM json_each(NEW.headers) WHERE type <> 'text') END
BEGIN
	SELECT RAISE(ABORT, 'headers: strings without control characters, 64 KiB at most');
END;

CREATE TRIGGER postroom_outbox_headers_changed BEFORE UPDATE OF headers ON postroom_outbox
WHEN CASE WHEN json_valid(NEW.headers) THEN
	EXISTS (SELECT 1 FROM json_each(NEW.headers) WHERE type <> 'text') END
BEGIN
	SELECT RAISE(ABORT, 'headers: strings without control characters, 64 KiB at most');
END;

-- Large content leaves the row in the statement that writes it. SQLite prepares memory for a trigger's
-- statements before it evaluates WHEN, so the large statement is in a trigger of its own: it would
-- cost each INSERT of a small message 8 %.
CREATE VIEW postroom_outbox_large AS SELECT seq, payload, body FROM postroom_outbox;
CREATE TRIGGER postroom_outbox_large_moved INSTEAD OF INSERT ON postroom_outbox_large
BEGIN
	INSERT INTO postroom_content (size, payload, body) VALUES (length(CAST(NEW.payload AS BLOB)) + coalesce(length(NEW.body), 0), NEW.payload, NEW.body);
	UPDATE postroom_outbox SET payload = 'null', body = NULL, content = last_insert_rowid() WHERE seq = NEW.seq;
END;

CREATE TRIGGER postroom_outbox_content AFTER INSERT ON postroom_outbox
WHEN length(CAST(NEW.payload AS BLOB)) + coalesce(length(NEW.body), 0) > 262144
BEGIN
	INSERT INTO postroom_outbox_large (seq, payload, body) VALUES (NEW.seq, NEW.payload, NEW.body);
END;

CREATE TRIGGER postroom_outbox_content_changed AFTER UPDATE OF payload, body ON postroom_outbox
WHEN length(CAST(NEW.payload AS BLOB)) + coalesce(length(NEW.body), 0) > 262144
BEGIN
	INSERT INTO postroom_outbox_large (seq, payload, body) VALUES (NEW.seq, NEW.payload, NEW.body);
END;

CREATE TRIGGER postroom_outbox_content_kept BEFORE UPDATE OF payload, body ON postroom_outbox
WHEN OLD.content IS NOT NULL
BEGIN
	SELECT RAISE(ABORT, 'postroom_outbox: large payloads and bodies cannot be changed; delete the row and insert it again');
END;

CREATE TRIGGER postroom_outbox_content_deleted AFTER DELETE ON postroom_outbox WHEN OLD.content IS NOT NULL
BEGIN
	DELETE FROM postroom_content WHERE number = OLD.content;
END;

-- Every message as it is now.
CREATE VIEW postroom_messages AS
SELECT CASE length(id) WHEN 32 THEN lower(substr(id, 1, 8) || '-' || substr(id, 9, 4) || '-'
		|| substr(id, 13, 4) || '-' || substr(id, 17, 4) || '-' || substr(id, 21)) ELSE lower(id) END AS id,
	seq, namespace, topic,
	CASE length(tenant_id) WHEN 32 THEN lower(substr(tenant_id, 1, 8) || '-' || substr(tenant_id, 9, 4) || '-'
		|| substr(tenant_id, 13, 4) || '-' || substr(tenant_id, 17, 4) || '-' || substr(tenant_id, 21))
		ELSE lower(tenant_id) END AS tenant_id, key, dedupe_key, correlation_id,
	CASE WHEN content IS NULL THEN payload ELSE (SELECT c.payload FROM postroom_content AS c WHERE c.number = content) END AS payload,
	CASE WHEN content IS NULL THEN body ELSE (SELECT c.body FROM postroom_content AS c WHERE c.number = content) END AS body,
	content_type, headers, status, attempts, claims, next_attempt_at, locked_by, locked_until,
	last_attempt_at, last_error, created_at, updated_at, delivered_at
FROM postroom_outbox;

-- Events and commands of each handler: completed, in progress or pending. One row for each
-- event or command and handler (N1). `seq`, `claims`, `state` and the columns of a lease are as in the outbox.
CREATE TABLE postroom_inbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT
		CONSTRAINT "seq: positive" CHECK (seq > 0),
	id TEXT NOT NULL
		CONSTRAINT "id: 1 to 1024 bytes" CHECK (length(CAST(id AS BLOB)) BETWEEN 1 AND 1024 AND instr(id, char(0)) = 0),
	handler_name TEXT NOT NULL
		CONSTRAINT "handler_name: 1 to 255 bytes without control characters" CHECK (length(CAST(handler_name AS BLOB)) BETWEEN 1 AND 255
			AND handler_name NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
			AND instr(handler_name, char(0)) = 0),
	topic TEXT
		CONSTRAINT "topic: 1 to 255 bytes without control characters" CHECK (topic IS NULL
			OR (length(CAST(topic AS BLOB)) BETWEEN 1 AND 255
				AND topic NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
				AND instr(topic, char(0)) = 0)),
	tenant_id TEXT
		CONSTRAINT "tenant_id: a UUID in lower case" CHECK (length(tenant_id) = 36
			AND replace(tenant_id, '-', '') NOT GLOB '*[^0-9a-f]*'
			AND tenant_id GLOB '????????-????-????-????-????????????'
			AND length(replace(tenant_id, '-', '')) = 32),
	correlation_id TEXT
		CONSTRAINT "correlation_id: 1 to 255 bytes" CHECK (length(CAST(correlation_id AS BLOB)) BETWEEN 1 AND 255 AND instr(correlation_id, char(0)) = 0),
	key TEXT
		CONSTRAINT "key: 1 to 1024 bytes" CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 1024 AND instr(key, char(0)) = 0),
	status TEXT NOT NULL DEFAULT 'pending'
		CONSTRAINT "status: pending, active, completed or dead" CHECK (status IN ('pending', 'active', 'completed', 'dead')),
	payload TEXT
		CONSTRAINT "payload: valid JSON, 64 MiB at most" CHECK (payload IS NULL OR (json_valid(payload) AND instr(payload, char(0)) = 0
			AND length(CAST(payload AS BLOB)) <= 67108864)),
	body BLOB
		CONSTRAINT "body: 64 MiB at most" CHECK (length(body) <= 67108864),
	content INTEGER, -- as in the outbox
	-- A claim treats the jobs of a handler as a namespace. Behind payload and body: SQLite's blob
	-- handles count columns as if a virtual one were stored.
	namespace TEXT GENERATED ALWAYS AS (handler_name) VIRTUAL,
	content_type TEXT NOT NULL DEFAULT 'application/json'
		CONSTRAINT "content_type: 1 to 255 bytes without control characters" CHECK (content_type = 'application/json'
			OR (length(CAST(content_type AS BLOB)) BETWEEN 1 AND 255
				AND content_type NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'
				AND instr(content_type, char(0)) = 0)),
	headers TEXT NOT NULL DEFAULT '{}'
		CONSTRAINT "headers: a JSON object of strings, 64 KiB at most" CHECK (json_valid(headers) AND json_type(headers) IS 'object'
			AND instr(headers, char(0)) = 0 AND instr(replace(headers, '\\', '  '), '\u0000') = 0
			AND length(CAST(headers AS BLOB)) <= 65536),
	checkpoint TEXT
		CONSTRAINT "checkpoint: valid JSON" CHECK (checkpoint IS NULL OR (json_valid(checkpoint) AND instr(checkpoint, char(0)) = 0)),
	steps TEXT NOT NULL DEFAULT '{}'
		CONSTRAINT "steps: a JSON object" CHECK (json_valid(steps) AND json_type(steps) IS 'object'),
	attempts INTEGER NOT NULL DEFAULT 0
		CONSTRAINT "attempts: 0 to 1000000" CHECK (attempts BETWEEN 0 AND 1000000),
	claims INTEGER NOT NULL DEFAULT 0
		CONSTRAINT "claims: not negative" CHECK (claims >= 0),
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
	-- Ready from the beginning: an event with a key is in the index of keys, where later
	-- incoming events of the key find it.
	state TEXT NOT NULL DEFAULT 'ready'
		CONSTRAINT "state: new, scheduled, held, dead or ready" CHECK (state IN ('new', 'scheduled', 'held', 'dead', 'ready')),

	UNIQUE (id, handler_name),
	CONSTRAINT "key: only with a topic" CHECK (key IS NULL OR topic IS NOT NULL),
	CONSTRAINT "locked_by, locked_until: set while active, and only then" CHECK ((status = 'active') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (locked_until IS NULL)),
	CONSTRAINT "a time between 1970 and 9999" CHECK (
		next_attempt_at BETWEEN 0 AND 253402300799999999
		AND created_at BETWEEN 0 AND 253402300799999999
		AND updated_at BETWEEN 0 AND 253402300799999999
		AND (locked_until IS NULL OR locked_until BETWEEN 0 AND 253402300799999999)
		AND (last_attempt_at IS NULL OR last_attempt_at BETWEEN 0 AND 253402300799999999)
		AND (processed_at IS NULL OR processed_at BETWEEN 0 AND 253402300799999999)),
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
CREATE INDEX postroom_inbox_ready
	ON postroom_inbox (seq) WHERE status = 'pending'
		AND (state = 'ready' OR (state = 'new' AND next_attempt_at = created_at));
CREATE INDEX postroom_inbox_due
	ON postroom_inbox (next_attempt_at, seq) WHERE status = 'pending'
		AND (state IN ('scheduled', 'dead') OR (state = 'new' AND next_attempt_at <> created_at));
CREATE INDEX postroom_inbox_leased
	ON postroom_inbox (locked_until) WHERE status = 'active';
CREATE INDEX postroom_inbox_key
	ON postroom_inbox (key, topic, namespace) WHERE key IS NOT NULL AND processed_at IS NULL
		AND state <> 'dead' AND (claims > 0 OR state IN ('held', 'ready') OR (state = 'new' AND next_attempt_at < created_at));
CREATE INDEX postroom_inbox_held
	ON postroom_inbox (key, topic, namespace) WHERE state = 'held';
CREATE INDEX postroom_inbox_delayed
	ON postroom_inbox (next_attempt_at) WHERE key IS NOT NULL
		AND state = 'new' AND next_attempt_at > created_at;
CREATE INDEX postroom_inbox_blocking
	ON postroom_inbox (key, topic, namespace) WHERE key IS NOT NULL AND state = 'dead';
-- N4
CREATE INDEX postroom_inbox_completed
	ON postroom_inbox (updated_at) WHERE status = 'completed';
CREATE INDEX postroom_inbox_dead
	ON postroom_inbox (seq) WHERE status = 'dead';

-- How far each handler has read each stream or partition: the highest position that it passed in each
-- period. Positions are text that sorts as the broker counts.
CREATE TABLE postroom_sources (
	handler_name TEXT NOT NULL,
	source TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	position TEXT NOT NULL,
	PRIMARY KEY (handler_name, source, started_at)
) WITHOUT ROWID;

-- When the newest completed row was completed that has been deleted from the inbox, for each
-- handler. The inbox may not recognize an event that was handled before this time.
CREATE TABLE postroom_inbox_purged (
	handler_name TEXT NOT NULL PRIMARY KEY,
	completed_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER postroom_inbox_purge AFTER DELETE ON postroom_inbox WHEN OLD.status = 'completed'
BEGIN
	INSERT INTO postroom_inbox_purged (handler_name, completed_at)
	VALUES (OLD.handler_name, OLD.updated_at)
	ON CONFLICT (handler_name) DO UPDATE SET completed_at = excluded.completed_at
		WHERE completed_at < excluded.completed_at;
END;

-- Rules that no CHECK can express. Only an INSERT is checked: the program itself writes these columns later.
-- A seq that is not given by hand is below zero here. The highest possible one would leave
-- no number for the next row. A lease without a worker, or a fencing token without room to
-- grow, would keep the row from being claimed.
CREATE TRIGGER postroom_inbox_new BEFORE INSERT ON postroom_inbox
WHEN NEW.seq > 1000000000000000 OR NEW.claims > 1000000 OR NEW.status = 'active'
	OR (NEW.state = 'held' AND NEW.key IS NULL) OR NEW.content IS NOT NULL
BEGIN
	SELECT RAISE(ABORT, 'postroom_inbox: seq, claims, status, locked_by, delivered_at, content or state is not that of a new row');
END;

CREATE TRIGGER postroom_inbox_headers BEFORE INSERT ON postroom_inbox
WHEN NEW.headers <> '{}' AND CASE WHEN json_valid(NEW.headers) THEN
	EXISTS (SELECT 1 FROM json_each(NEW.headers) WHERE type <> 'text') END
BEGIN
	SELECT RAISE(ABORT, 'headers: a JSON object of strings, 64 KiB at most');
END;

CREATE TRIGGER postroom_inbox_headers_changed BEFORE UPDATE OF headers ON postroom_inbox
WHEN CASE WHEN json_valid(NEW.headers) THEN
	EXISTS (SELECT 1 FROM json_each(NEW.headers) WHERE type <> 'text') END
BEGIN
	SELECT RAISE(ABORT, 'headers: a JSON object of strings, 64 KiB at most');
END;

-- As in the outbox.
CREATE VIEW postroom_inbox_large AS SELECT seq, payload, body FROM postroom_inbox;
CREATE TRIGGER postroom_inbox_large_moved INSTEAD OF INSERT ON postroom_inbox_large
BEGIN
	INSERT INTO postroom_content (size, payload, body) VALUES (coalesce(length(CAST(NEW.payload AS BLOB)), 0) + coalesce(length(NEW.body), 0), NEW.payload, NEW.body);
	UPDATE postroom_inbox SET payload = NULL, body = NULL, content = last_insert_rowid() WHERE seq = NEW.seq;
END;

CREATE TRIGGER postroom_inbox_content AFTER INSERT ON postroom_inbox
WHEN coalesce(length(CAST(NEW.payload AS BLOB)), 0) + coalesce(length(NEW.body), 0) > 262144
BEGIN
	INSERT INTO postroom_inbox_large (seq, payload, body) VALUES (NEW.seq, NEW.payload, NEW.body);
END;

CREATE TRIGGER postroom_inbox_content_changed AFTER UPDATE OF payload, body ON postroom_inbox
WHEN coalesce(length(CAST(NEW.payload AS BLOB)), 0) + coalesce(length(NEW.body), 0) > 262144
BEGIN
	INSERT INTO postroom_inbox_large (seq, payload, body) VALUES (NEW.seq, NEW.payload, NEW.body);
END;

CREATE TRIGGER postroom_inbox_content_kept BEFORE UPDATE OF payload, body ON postroom_inbox
WHEN OLD.content IS NOT NULL
BEGIN
	SELECT RAISE(ABORT, 'postroom_inbox: large payloads and bodies cannot be changed; delete the row and insert it again');
END;

CREATE TRIGGER postroom_inbox_content_deleted AFTER DELETE ON postroom_inbox WHEN OLD.content IS NOT NULL
BEGIN
	DELETE FROM postroom_content WHERE number = OLD.content;
END;

-- The last ten failed attempts of each message or job; rows of the outbox have no handler.
CREATE TABLE postroom_attempts (
	seq INTEGER PRIMARY KEY,
	handler_name TEXT NOT NULL DEFAULT '',
	id TEXT NOT NULL,
	number INTEGER NOT NULL,
	at INTEGER NOT NULL,
	duration_ms INTEGER,
	worker TEXT,
	sink TEXT,
	error TEXT
) STRICT;
CREATE INDEX postroom_attempts_row ON postroom_attempts (handler_name, id);
