-- compatible-with: 1
-- Workers in any language claim and settle messages with these functions alone (S1), beside relays and
-- at the same time. docs/workers.md describes them; docs/internals/lanes.md has the invariants.
--
-- A claim by these functions gives each message a lease of its own, whatever the kind of lease of the
-- database. It locks first and reads in a later statement: under READ COMMITTED each statement of a
-- VOLATILE function has its own snapshot, so it sees all that was committed before the lock.
-- The settings of each public function force plans that use the indexes, whatever the statistics say.

-- The scope of a claim: NULL is any, and the topic is a pattern of LIKE. Beside it the kind of lease of
-- the database, and the lanes that other workers have leased.
CREATE TYPE {schema}postroom_worker_scope AS (namespace text, topic text, tenant_id uuid, lease text,
	leased smallint[]);

CREATE FUNCTION {schema}postroom_worker_in_scope(namespace text, topic text, tenant_id uuid,
	scope {schema}postroom_worker_scope) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT (($4).namespace IS NULL OR $1 = ($4).namespace COLLATE "C")
	AND (($4).topic IS NULL OR $2 LIKE ($4).topic COLLATE "C")
	AND (($4).tenant_id IS NULL OR $3 = ($4).tenant_id)
$$;

CREATE FUNCTION {schema}postroom_worker_require(condition boolean, message text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF condition IS NOT TRUE THEN
		RAISE EXCEPTION '%', message USING ERRCODE = 'invalid_parameter_value';
	END IF;
END $$;

-- In another isolation a statement does not see what others committed before its locks.
CREATE FUNCTION {schema}postroom_worker_check(caller text, worker uuid) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
		RAISE EXCEPTION '%: the transaction is %; call it in a transaction that is READ COMMITTED',
			caller, upper(current_setting('transaction_isolation'))
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM {schema}postroom_worker_require(worker IS NOT NULL, caller || ': worker must not be null');
END $$;

CREATE FUNCTION {schema}postroom_worker_check_claim(caller text, most integer, lease interval,
	max_attempts integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM {schema}postroom_worker_require(most BETWEEN 1 AND 10000,
		caller || ': a claim is for 1 to 10000 rows');
	PERFORM {schema}postroom_worker_require(lease BETWEEN interval '1 millisecond' AND interval '1 day',
		caller || ': lease must be between 1 millisecond and 1 day');
	PERFORM {schema}postroom_worker_require(max_attempts >= 1, caller || ': max_attempts must be 1 or more');
END $$;

-- Only '*' is special in a pattern.
CREATE FUNCTION {schema}postroom_worker_pattern(topic text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT replace(regexp_replace(topic, E'([\\\\%_])', E'\\\\\\1', 'g'), '*', '%')
$$;

-- R1: doubles from a second to five minutes; equal jitter.
CREATE FUNCTION {schema}postroom_worker_backoff(attempts integer) RETURNS interval
LANGUAGE sql VOLATILE AS $$
SELECT least(300, power(2, least($1, 20) - 1)) * (0.5 + random() / 2) * interval '1 second'
$$;

-- Of the history of failed attempts the last ten of a message stay.
CREATE FUNCTION {schema}postroom_worker_record(handler text, row_id text, attempt integer,
	took interval, attempt_worker uuid, reason text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	DELETE FROM {schema}postroom_attempts AS a WHERE a.handler_name = handler AND a.id = row_id
		AND a.seq <= (SELECT b.seq FROM {schema}postroom_attempts AS b
			WHERE b.handler_name = handler AND b.id = row_id
			ORDER BY b.handler_name DESC, b.id DESC, b.seq DESC OFFSET 9 LIMIT 1);
	INSERT INTO {schema}postroom_attempts (handler_name, id, number, duration_ms, worker, error)
	VALUES (handler, row_id, attempt, extract(epoch FROM took) * 1000, attempt_worker, reason);
END $$;

-- I8: the lock on the table comes before the snapshot that reads the kind of lease. It lasts until the
-- transaction ends, so the kind stays the same as long.
CREATE FUNCTION {schema}postroom_worker_lanes(OUT lease text, OUT leased smallint[], OUT lost smallint[])
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM FROM {schema}postroom_lanes AS l WHERE l.lane = 0 FOR SHARE;
	SELECT max(l.lease::text), array_agg(l.lane) FILTER (WHERE l.locked_by IS NOT NULL),
		array_agg(l.lane) FILTER (WHERE l.locked_until < clock_timestamp())
	INTO postroom_worker_lanes.lease, leased, lost
	FROM generate_series(1, 64) AS n CROSS JOIN LATERAL (
		SELECT * FROM {schema}postroom_lanes AS l WHERE l.lane = n::smallint
		ORDER BY l.epoch DESC LIMIT 1) AS l;
END $$;

-- The lost leases of lanes become lost leases of their messages, each with one counted attempt (I5).
CREATE FUNCTION {schema}postroom_worker_take_over(lanes smallint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	mine smallint[];
BEGIN
	SELECT array_agg(l.lane) INTO mine FROM (SELECT l.lane FROM {schema}postroom_lanes AS l
		WHERE l.lane = ANY (lanes) AND l.locked_until < clock_timestamp()
		ORDER BY l.lane FOR UPDATE SKIP LOCKED) AS l;
	UPDATE {schema}postroom_outbox AS o SET status = 'processing', attempts = o.attempts + 1,
		claims = o.claims + 1, state = 'scheduled', locked_by = l.locked_by, locked_until = l.locked_until,
		last_attempt_at = l.locked_until, updated_at = clock_timestamp()
	FROM {schema}postroom_lanes AS l
	WHERE l.lane = ANY (mine)
		AND l.lane = ((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1)
		AND o.id = ANY (ARRAY(SELECT f.id
			FROM (SELECT w.lane, unnest(w.in_flight) AS seq FROM {schema}postroom_lanes AS w
				WHERE w.lane = ANY (mine)) AS w
			CROSS JOIN LATERAL (SELECT f.id FROM {schema}postroom_outbox AS f
				WHERE ((CASE WHEN f.key IS NULL THEN f.seq ELSE hashtext(f.key) END & 63) + 1) = w.lane
				AND f.seq = w.seq AND f.status = 'pending' AND f.state = 'ready' LIMIT 1) AS f));
	UPDATE {schema}postroom_lanes AS l SET locked_by = NULL, locked_until = NULL, in_flight = NULL,
		epoch = l.epoch + 1
	WHERE l.lane = ANY (mine);
END $$;

-- Held messages of keys whose blocker is finished become claimable. Call it in a statement after the
-- one that finished the blocker: it must see what was held until then (I7).
CREATE FUNCTION {schema}postroom_worker_unblock(keys text[], topics text[], namespaces text[])
	RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM {schema}postroom_outbox WHERE status = 'pending' AND state = 'held') THEN
		RETURN;
	END IF;
	UPDATE {schema}postroom_outbox AS o SET state = 'scheduled'
	WHERE o.status = 'pending' AND o.state = 'held' AND o.id = ANY (ARRAY(
		SELECT h.id FROM (SELECT DISTINCT * FROM unnest(keys, topics, namespaces)
			AS k(key, topic, namespace) WHERE k.key IS NOT NULL) AS k
		CROSS JOIN LATERAL (SELECT h.id FROM {schema}postroom_outbox AS h
			WHERE h.key = k.key COLLATE "C" AND h.topic = k.topic COLLATE "C"
			AND h.namespace = k.namespace COLLATE "C" AND h.status = 'pending' AND h.state = 'held'
			AND h.seq < coalesce((SELECT b.seq FROM {schema}postroom_outbox AS b
				WHERE b.key = k.key COLLATE "C" AND b.topic = k.topic COLLATE "C"
				AND b.namespace = k.namespace COLLATE "C" AND b.state = 'scheduled'
				AND b.status IN ('pending', 'processing') ORDER BY b.seq LIMIT 1),
				9223372036854775807)
			ORDER BY h.seq LIMIT 500) AS h));
END $$;

-- Unblocks all keys that have lost their blocker: two workers may have finished messages of a key at
-- the same moment. Goes from key to key.
CREATE FUNCTION {schema}postroom_worker_sweep() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	keys text[];
	topics text[];
	namespaces text[];
BEGIN
	WITH RECURSIVE k AS (
		(SELECT o.key, o.topic, o.namespace FROM {schema}postroom_outbox AS o
		WHERE o.status = 'pending' AND o.state = 'held' ORDER BY o.key, o.topic, o.namespace LIMIT 1)
		UNION ALL
		SELECT n.* FROM k CROSS JOIN LATERAL (
			SELECT o.key, o.topic, o.namespace FROM {schema}postroom_outbox AS o
			WHERE o.status = 'pending' AND o.state = 'held'
			AND (o.key, o.topic, o.namespace) > (k.key, k.topic, k.namespace)
			ORDER BY o.key, o.topic, o.namespace LIMIT 1) AS n)
	SELECT array_agg(k.key), array_agg(k.topic), array_agg(k.namespace)
	INTO keys, topics, namespaces FROM k;
	PERFORM {schema}postroom_worker_unblock(keys, topics, namespaces);
END $$;

-- Of messages that a claim has locked, by row or by lane, returns those without an earlier unfinished
-- message of their key elsewhere (I6). The others are held, with a share lock on their blocker: the
-- worker that finishes it waits, and unblocks them (I7). A blocker that another worker has just claimed
-- will be finished in a moment, and holds nothing.
CREATE FUNCTION {schema}postroom_worker_hold(ids uuid[], chosen uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	mine uuid[] := chosen || ids;
	behind uuid[];
	blockers uuid[];
	locked uuid[];
BEGIN
	WITH keys AS MATERIALIZED (
		SELECT DISTINCT o.key, o.topic, o.namespace FROM {schema}postroom_outbox AS o
		WHERE o.id = ANY (ids) AND o.key IS NOT NULL
	), first AS MATERIALIZED (
		SELECT k.*, b.id, b.seq FROM keys AS k CROSS JOIN LATERAL (
			(SELECT b.id, b.seq FROM {schema}postroom_outbox AS b
			WHERE b.key = k.key AND b.topic = k.topic AND b.namespace = k.namespace
			AND b.state = 'scheduled' AND b.status IN ('pending', 'processing') AND b.id <> ALL (mine)
			ORDER BY b.seq LIMIT 1)
			UNION ALL
			(SELECT b.id, b.seq FROM {schema}postroom_outbox AS b
			WHERE b.key = k.key AND b.topic = k.topic AND b.namespace = k.namespace
			AND b.state = 'held' AND b.status = 'pending' ORDER BY b.seq LIMIT 1)
			ORDER BY 2 LIMIT 1) AS b
	)
	SELECT array_agg(o.id), array_agg(f.id) INTO behind, blockers
	FROM {schema}postroom_outbox AS o JOIN first AS f USING (key, topic, namespace)
	WHERE o.id = ANY (ids) AND o.seq > f.seq;
	IF behind IS NULL THEN
		RETURN ids;
	END IF;
	SELECT array_agg(b.id) INTO locked FROM (SELECT b.id FROM {schema}postroom_outbox AS b
		WHERE b.id = ANY (blockers) AND b.state IN ('scheduled', 'held') AND (b.status = 'pending'
		OR (b.status = 'processing' AND b.last_attempt_at < clock_timestamp() - interval '100 ms'))
		ORDER BY b.id FOR SHARE SKIP LOCKED) AS b;
	UPDATE {schema}postroom_outbox AS o SET state = 'held' WHERE o.id = ANY (ARRAY(
		SELECT o.id FROM {schema}postroom_outbox AS o WHERE o.status = 'pending' AND o.id = ANY (ARRAY(
			SELECT w.id FROM unnest(behind, blockers) AS w(id, blocker) WHERE w.blocker = ANY (locked)))
		ORDER BY o.id FOR UPDATE SKIP LOCKED));
	RETURN ARRAY(SELECT u.id FROM unnest(ids) WITH ORDINALITY AS u(id, n)
		WHERE u.id <> ALL (behind) ORDER BY u.n);
END $$;

-- Delayed messages with a key join the order of their key when they are due, at its end: in the order
-- of their times, and none before one that another worker has locked.
CREATE FUNCTION {schema}postroom_worker_join_keys(scope {schema}postroom_worker_scope, ids uuid[])
	RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	WITH delayed AS MATERIALIZED (
		SELECT o.id, bool_and(o.id = ANY (ids)) OVER (PARTITION BY o.key, o.topic, o.namespace
			ORDER BY o.next_attempt_at, o.seq) AS joins, o.next_attempt_at AS due, o.seq
		FROM {schema}postroom_outbox AS o WHERE o.status = 'pending' AND o.state = 'delayed'
		AND o.next_attempt_at <= (SELECT max(m.next_attempt_at) FROM {schema}postroom_outbox AS m
			WHERE m.id = ANY (ids))
		AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, scope)
	), numbered AS MATERIALIZED (
		SELECT d.id, nextval('{schema}postroom_outbox_seq_seq') AS seq
		FROM (SELECT * FROM delayed WHERE joins ORDER BY due, seq) AS d
	)
	UPDATE {schema}postroom_outbox AS o SET state = 'ready', seq = n.seq
	FROM numbered AS n WHERE o.id = n.id;
END $$;

-- Scheduled messages that are due: failed, delayed, released or unblocked.
CREATE FUNCTION {schema}postroom_worker_find_scheduled(scope {schema}postroom_worker_scope, most integer,
	chosen uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	at timestamptz := clock_timestamp();
	due uuid[];
	delayed uuid[];
	free uuid[];
BEGIN
	FOR try IN 1..8 LOOP
		SELECT array_agg(o.id ORDER BY o.seq) FILTER (WHERE o.state = 'scheduled'),
			array_agg(o.id) FILTER (WHERE o.state = 'delayed')
		INTO due, delayed FROM (SELECT o.id, o.seq, o.state FROM {schema}postroom_outbox AS o
			WHERE o.status = 'pending' AND o.state IN ('scheduled', 'delayed') AND o.next_attempt_at <= at
			AND o.id <> ALL (chosen)
			AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, scope)
			ORDER BY o.next_attempt_at, o.seq LIMIT most FOR UPDATE SKIP LOCKED) AS o;
		IF delayed IS NOT NULL THEN
			PERFORM {schema}postroom_worker_join_keys(scope, delayed);
		END IF;
		free := {schema}postroom_worker_hold(coalesce(due, '{}'), chosen);
		EXIT WHEN free <> '{}' OR coalesce(cardinality(due), 0) + coalesce(cardinality(delayed), 0) < most;
	END LOOP;
	RETURN free;
END $$;

-- Ready messages without a key, where messages are leased by row. A lane may still be leased from the
-- time when lanes were: its messages belong to that worker.
CREATE FUNCTION {schema}postroom_worker_find_unkeyed(scope {schema}postroom_worker_scope, most integer,
	chosen uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	at timestamptz := clock_timestamp();
	leased smallint[] := coalesce(scope.leased, '{}');
BEGIN
	RETURN ARRAY(SELECT o.id FROM {schema}postroom_outbox AS o
		WHERE o.status = 'pending' AND o.state = 'ready' AND o.key IS NULL AND o.next_attempt_at <= at
		AND (o.seq & 63) + 1 <> ALL (leased) AND o.id <> ALL (chosen)
		AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, scope)
		ORDER BY o.next_attempt_at, o.seq LIMIT most FOR UPDATE SKIP LOCKED);
END $$;

-- Ready messages of a lane in order, from its low-water mark, or from below it once a transaction has
-- ended that the mark has passed (I9). Each kind of lease has its own index,
-- and with row leases a lane has only messages with a key.
CREATE FUNCTION {schema}postroom_worker_ready(lane smallint, scope {schema}postroom_worker_scope,
	most integer, chosen uuid[])
	RETURNS TABLE (id uuid, seq bigint, due timestamptz)
LANGUAGE sql STABLE AS $$
SELECT o.id, o.seq, o.due
FROM (SELECT least(l.low_water_seq, (SELECT min(p.seq) FROM unnest(l.passed, l.passed_from) AS p(xid, seq)
		WHERE p.xid <> ALL (ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot()))))) AS start_seq
	FROM {schema}postroom_lanes AS l WHERE l.lane = $1 ORDER BY l.epoch DESC LIMIT 1) AS l
CROSS JOIN LATERAL (
	(SELECT o.id, o.seq, o.next_attempt_at::timestamptz AS due FROM {schema}postroom_outbox AS o
	WHERE ($2).lease = 'row' AND o.key IS NOT NULL AND o.status = 'pending' AND o.state = 'ready'
	AND ((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1) = $1
	AND o.seq >= l.start_seq AND o.id <> ALL ($4)
	AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, $2)
	ORDER BY o.seq LIMIT $3)
	UNION ALL
	(SELECT o.id, o.seq, o.next_attempt_at::timestamptz AS due FROM {schema}postroom_outbox AS o
	WHERE ($2).lease = 'lane' AND o.status = 'pending' AND o.state = 'ready'
	AND ((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1) = $1
	AND o.seq >= l.start_seq AND o.id <> ALL ($4)
	AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, $2)
	ORDER BY o.seq LIMIT $3)) AS o
$$;

-- Ready messages of lanes that the claim has locked. Ready messages change only in transactions that
-- have locked their lane, so these statements see them as they are (I1).
CREATE FUNCTION {schema}postroom_worker_find_in(mine smallint[], scope {schema}postroom_worker_scope,
	most integer, chosen uuid[], OUT free uuid[], OUT changed smallint[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	met uuid[];
	early uuid[];
BEGIN
	-- Messages that must wait are held or delayed: there may be more behind them.
	FOR try IN 1..8 LOOP
		SELECT array_agg(m.id ORDER BY m.lane, m.seq) FILTER (WHERE m.due <= clock_timestamp()),
			array_agg(m.id) FILTER (WHERE m.due > clock_timestamp()),
			coalesce(changed, '{}') || array_agg(DISTINCT m.lane)
		INTO met, early, changed FROM (SELECT n.lane, o.* FROM unnest(mine) AS n(lane)
			CROSS JOIN LATERAL {schema}postroom_worker_ready(n.lane, scope, most, chosen) AS o
			LIMIT most) AS m;
		UPDATE {schema}postroom_outbox AS o
		SET state = CASE WHEN o.key IS NULL OR o.attempts > 0
			THEN 'scheduled'::{schema}postroom_state ELSE 'delayed' END
		WHERE o.id = ANY (early) AND o.status = 'pending' AND o.state = 'ready';
		free := {schema}postroom_worker_hold(coalesce(met, '{}'), chosen);
		EXIT WHEN free <> '{}' OR coalesce(cardinality(met), 0) + coalesce(cardinality(early), 0) < most;
	END LOOP;
END $$;

-- Ready messages of the lanes, sixteen lanes at a time, the lane with the oldest message first. Lanes
-- that are locked or leased are skipped. The epoch grows: so a claim with an older snapshot takes
-- nothing, and a relay does not go on at its resume position.
CREATE FUNCTION {schema}postroom_worker_find_in_lanes(scope {schema}postroom_worker_scope, most integer,
	chosen uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	lanes smallint[];
	mine smallint[];
	part record;
	free uuid[] := '{}';
BEGIN
	lanes := ARRAY(SELECT n::smallint FROM generate_series(1, 64) AS n
		CROSS JOIN LATERAL {schema}postroom_worker_ready(n::smallint, scope, 1, chosen) AS o
		WHERE n <> ALL (coalesce(scope.leased, '{}')) ORDER BY o.due, o.seq);
	WHILE lanes <> '{}' AND cardinality(free) < most LOOP
		SELECT array_agg(l.lane ORDER BY array_position(lanes, l.lane)) INTO mine
		FROM (SELECT l.lane FROM unnest(lanes[:16]) AS n(lane) CROSS JOIN LATERAL (
				SELECT l.lane, l.epoch FROM {schema}postroom_lanes AS l WHERE l.lane = n.lane
				ORDER BY l.epoch DESC LIMIT 1) AS c
			JOIN {schema}postroom_lanes AS l ON l.lane = c.lane AND l.epoch = c.epoch
			WHERE l.locked_by IS NULL FOR UPDATE OF l SKIP LOCKED) AS l;
		lanes := lanes[17:];
		CONTINUE WHEN mine IS NULL;
		part := {schema}postroom_worker_find_in(mine, scope, most - cardinality(free), chosen || free);
		UPDATE {schema}postroom_lanes AS l SET epoch = l.epoch + 1 WHERE l.lane = ANY (part.changed);
		free := free || part.free;
	END LOOP;
	RETURN free;
END $$;

-- The first due time of each claim path that has messages.
CREATE FUNCTION {schema}postroom_worker_paths(scope {schema}postroom_worker_scope, chosen uuid[])
	RETURNS TABLE (path text, due timestamptz)
LANGUAGE sql STABLE AS $$
(SELECT 'scheduled', o.next_attempt_at::timestamptz FROM {schema}postroom_outbox AS o
WHERE o.status = 'pending' AND o.state IN ('scheduled', 'delayed') AND o.next_attempt_at <= (SELECT clock_timestamp())
AND o.id <> ALL ($2) AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, $1)
ORDER BY o.next_attempt_at, o.seq LIMIT 1)
UNION ALL
(SELECT 'unkeyed', o.next_attempt_at::timestamptz FROM {schema}postroom_outbox AS o
WHERE ($1).lease = 'row' AND o.status = 'pending' AND o.state = 'ready' AND o.key IS NULL
AND o.next_attempt_at <= (SELECT clock_timestamp())
AND o.id <> ALL ($2) AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, $1)
ORDER BY o.next_attempt_at, o.seq LIMIT 1)
UNION ALL
(SELECT 'lanes', min(o.due) FROM generate_series(1, 64) AS n
CROSS JOIN LATERAL {schema}postroom_worker_ready(n::smallint, $1, 1, $2) AS o HAVING count(*) > 0)
$$;

-- Chooses and locks messages for a claim. The path with the oldest message comes first and gets half of
-- what is left, the last one all of it; then once more, because a path may have had less than its part.
CREATE FUNCTION {schema}postroom_worker_choose(scope {schema}postroom_worker_scope, most integer)
	RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	chosen uuid[] := '{}';
	paths text[];
	room integer;
	part integer;
BEGIN
	FOR try IN 1..2 LOOP
		paths := ARRAY(SELECT p.path FROM {schema}postroom_worker_paths(scope, chosen) AS p ORDER BY p.due);
		FOR i IN 1..cardinality(paths) LOOP
			room := most - cardinality(chosen);
			EXIT WHEN room = 0;
			part := CASE WHEN i < cardinality(paths) THEN (room + 1) / 2 ELSE room END;
			chosen := chosen || CASE paths[i]
				WHEN 'scheduled' THEN {schema}postroom_worker_find_scheduled(scope, part, chosen)
				WHEN 'unkeyed' THEN {schema}postroom_worker_find_unkeyed(scope, part, chosen)
				ELSE {schema}postroom_worker_find_in_lanes(scope, part, chosen) END;
		END LOOP;
		EXIT WHEN cardinality(chosen) = most OR cardinality(paths) = 0;
	END LOOP;
	-- No more than 8 MiB, but always one. A message is never chosen before an earlier one of its key.
	RETURN ARRAY(SELECT c.id FROM (SELECT u.id, u.n, sum(pg_column_size(o.payload)
			+ coalesce(octet_length(o.body), 0) + pg_column_size(o.headers)) OVER (ORDER BY u.n) AS bytes
		FROM unnest(chosen) WITH ORDINALITY AS u(id, n) JOIN {schema}postroom_outbox AS o ON o.id = u.id) AS c
		WHERE c.bytes <= 8388608 OR c.n = 1 ORDER BY c.n);
END $$;

-- Leases the messages, or makes dead letters of those without attempts left; returns the leased ones.
CREATE FUNCTION {schema}postroom_worker_lease(ids uuid[], worker uuid, lease interval,
	max_attempts integer, reason text) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	at timestamptz := clock_timestamp();
	leased uuid[];
	keys text[];
	topics text[];
	namespaces text[];
BEGIN
	WITH claimed AS (
		UPDATE {schema}postroom_outbox AS o SET state = 'scheduled', updated_at = at, claims = o.claims + 1,
			status = CASE WHEN o.attempts < max_attempts THEN 'processing' ELSE 'dead' END,
			attempts = o.attempts + (o.attempts < max_attempts)::int,
			locked_by = CASE WHEN o.attempts < max_attempts THEN worker END,
			locked_until = CASE WHEN o.attempts < max_attempts THEN at + lease END,
			last_attempt_at = CASE WHEN o.attempts < max_attempts THEN at ELSE o.last_attempt_at END,
			last_error = CASE WHEN o.attempts < max_attempts THEN o.last_error
				ELSE coalesce(reason, o.last_error) END
		WHERE o.id = ANY (ids) AND o.status IN ('pending', 'processing')
		RETURNING o.id, o.status, o.key, o.topic, o.namespace
	)
	SELECT array_agg(c.id) FILTER (WHERE c.status = 'processing'),
		array_agg(c.key) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL),
		array_agg(c.topic) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL),
		array_agg(c.namespace) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL)
	INTO leased, keys, topics, namespaces FROM claimed AS c;
	IF keys IS NOT NULL THEN
		PERFORM {schema}postroom_worker_unblock(keys, topics, namespaces);
	END IF;
	RETURN leased;
END $$;

-- Reclaims one message with an expired lease: it may have crashed its worker. It must be the earliest
-- unfinished one of its key. Returns NULL when there is none.
CREATE FUNCTION {schema}postroom_worker_reclaim(scope {schema}postroom_worker_scope, worker uuid,
	lease interval, max_attempts integer) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	lost record;
	leased uuid[];
BEGIN
	WHILE leased IS NULL LOOP
		SELECT o.id, o.attempts INTO lost FROM {schema}postroom_outbox AS o
		WHERE o.status = 'processing' AND o.locked_until < (SELECT clock_timestamp())
			AND {schema}postroom_worker_in_scope(o.namespace, o.topic, o.tenant_id, scope)
			AND (o.key IS NULL OR NOT EXISTS (SELECT FROM {schema}postroom_outbox AS b
				WHERE b.key = o.key AND b.topic = o.topic AND b.namespace = o.namespace
				AND b.seq < o.seq AND b.state = 'scheduled' AND b.status IN ('pending', 'processing')))
			AND (o.key IS NULL OR NOT EXISTS (SELECT FROM {schema}postroom_outbox AS b
				WHERE b.key = o.key AND b.topic = o.topic AND b.namespace = o.namespace
				AND b.seq < o.seq AND b.state = 'held' AND b.status = 'pending'))
		ORDER BY o.locked_until, o.seq LIMIT 1 FOR UPDATE OF o SKIP LOCKED;
		EXIT WHEN NOT FOUND;
		leased := {schema}postroom_worker_lease(ARRAY[lost.id], worker, lease, max_attempts,
			'the lease ran out during the last attempt: its worker died or hung');
		PERFORM {schema}postroom_worker_record('', lost.id::text, lost.attempts, NULL, NULL,
			CASE WHEN leased IS NULL
				THEN 'the lease ran out during the last attempt: its worker died or hung'
				ELSE 'the lease expired during the attempt: its worker died or hung' END);
	END LOOP;
	RETURN leased;
END $$;

-- Claims due messages, those of a key together and in order.
CREATE FUNCTION {schema}postroom_claim(worker uuid, OUT id uuid, OUT claims bigint, OUT attempts integer,
	max_messages integer DEFAULT 100, lease interval DEFAULT '30 seconds',
	INOUT namespace text DEFAULT NULL, INOUT topic text DEFAULT NULL, OUT key text,
	INOUT tenant_id uuid DEFAULT NULL, OUT dedupe_key text, OUT correlation_id text,
	OUT headers jsonb, OUT content_type text, OUT payload jsonb, OUT body bytea,
	OUT created_at timestamptz, max_attempts integer DEFAULT 10)
	RETURNS SETOF record
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	period interval := coalesce(lease, '30 seconds');
	most integer := coalesce(max_messages, 100);
	-- No row counts more attempts.
	tries integer := least(coalesce(max_attempts, 10), 1000000);
	scope {schema}postroom_worker_scope;
	lanes record;
	leased uuid[];
BEGIN
	PERFORM {schema}postroom_worker_check('postroom_claim', worker);
	PERFORM {schema}postroom_worker_check_claim('postroom_claim', most, period, tries);
	lanes := {schema}postroom_worker_lanes();
	scope := ROW(namespace, {schema}postroom_worker_pattern(topic), tenant_id, lanes.lease, lanes.leased);
	IF lanes.lost IS NOT NULL THEN
		PERFORM {schema}postroom_worker_take_over(lanes.lost);
	END IF;
	leased := {schema}postroom_worker_reclaim(scope, worker, period, tries);
	IF leased IS NULL THEN
		leased := {schema}postroom_worker_lease({schema}postroom_worker_choose(scope, most),
			worker, period, tries, NULL);
	END IF;
	RETURN QUERY SELECT o.id, o.claims::bigint, o.attempts::integer, o.namespace::text, o.topic::text,
		o.key::text, o.tenant_id, o.dedupe_key::text, o.correlation_id::text, o.headers::jsonb,
		o.content_type::text, o.payload::jsonb, o.body::bytea, o.created_at::timestamptz
	FROM {schema}postroom_outbox AS o WHERE o.id = ANY (leased)
	ORDER BY min(o.next_attempt_at) OVER (PARTITION BY o.key, o.topic, o.namespace,
		CASE WHEN o.key IS NULL THEN o.id END), o.seq;
	IF random() < (CASE WHEN FOUND THEN 0.01 ELSE 0.1 END) THEN
		PERFORM {schema}postroom_worker_sweep();
	END IF;
END $$;

-- Locks those of the messages that this worker still has under this fencing token (I4), and returns them.
CREATE FUNCTION {schema}postroom_worker_leased(caller text, worker uuid, ids uuid[], claims bigint[])
	RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM {schema}postroom_worker_check(caller, worker);
	PERFORM {schema}postroom_worker_require(cardinality(ids) = cardinality(claims),
		caller || ': ids and claims must be arrays of the same length');
	RETURN ARRAY(SELECT o.id FROM unnest(ids, claims) AS v(id, token)
		JOIN {schema}postroom_outbox AS o ON o.id = ANY (ARRAY[v.id])
		WHERE o.claims = v.token AND o.status = 'processing' AND o.locked_by = worker
		ORDER BY o.id FOR UPDATE OF o);
END $$;

-- Returns messages as they were before the claim; the attempt is refunded.
CREATE FUNCTION {schema}postroom_worker_return(ids uuid[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	count bigint;
BEGIN
	UPDATE {schema}postroom_outbox AS o SET status = 'pending', attempts = greatest(o.attempts - 1, 0),
		locked_by = NULL, locked_until = NULL, updated_at = clock_timestamp()
	WHERE o.id = ANY (ids);
	GET DIAGNOSTICS count = ROW_COUNT;
	RETURN count;
END $$;

-- Delivered. Where lanes are leased, the messages leave the outbox for the history.
CREATE FUNCTION {schema}postroom_ack(worker uuid, ids uuid[], claims bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	at timestamptz := clock_timestamp();
	mine uuid[] := {schema}postroom_worker_leased('postroom_ack', worker, ids, claims);
	keys text[];
	topics text[];
	namespaces text[];
BEGIN
	WITH done AS (
		UPDATE {schema}postroom_outbox AS o SET status = 'delivered', last_error = NULL, delivered_at = at,
			locked_by = NULL, locked_until = NULL, updated_at = at
		WHERE o.id = ANY (mine) RETURNING o.key, o.topic, o.namespace
	)
	SELECT array_agg(d.key), array_agg(d.topic), array_agg(d.namespace)
	INTO keys, topics, namespaces FROM done AS d WHERE d.key IS NOT NULL;
	IF (SELECT l.lease = 'lane' FROM {schema}postroom_lanes AS l WHERE l.lane = 1
		ORDER BY l.epoch DESC LIMIT 1) THEN
		WITH gone AS (
			DELETE FROM {schema}postroom_outbox AS o WHERE o.id = ANY (mine) RETURNING o.*
		)
		INSERT INTO {schema}postroom_history (id, seq, namespace, topic, tenant_id, key, dedupe_key,
			correlation_id, payload, body, content_type, headers, attempts, claims, next_attempt_at,
			last_attempt_at, created_at, delivered_at)
		SELECT g.id, g.seq, g.namespace, g.topic, g.tenant_id, g.key, g.dedupe_key, g.correlation_id,
			g.payload, g.body, g.content_type, g.headers, g.attempts, g.claims, g.next_attempt_at,
			g.last_attempt_at, g.created_at, g.delivered_at FROM gone AS g;
	END IF;
	IF keys IS NOT NULL THEN
		PERFORM {schema}postroom_worker_unblock(keys, topics, namespaces);
	END IF;
	RETURN cardinality(mine);
END $$;

-- Failed: pending again after the backoff, or a dead letter. As long as the message is not finished, the
-- later ones of its key must wait: those that this worker has claimed are released here.
CREATE FUNCTION {schema}postroom_nack(worker uuid, id uuid, claims bigint, error text DEFAULT NULL,
	permanent boolean DEFAULT false, retry_in interval DEFAULT NULL, max_attempts integer DEFAULT 10)
	RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	at timestamptz := clock_timestamp();
	tries integer := coalesce(max_attempts, 10);
	failed record;
BEGIN
	PERFORM {schema}postroom_worker_require(coalesce(retry_in, '0') BETWEEN interval '0' AND interval '3650 days',
		'postroom_nack: retry_in must be between 0 and 3650 days');
	PERFORM {schema}postroom_worker_check_claim('postroom_nack', 1, interval '1 second', tries);
	IF {schema}postroom_worker_leased('postroom_nack', worker, ARRAY[id], ARRAY[claims]) = '{}' THEN
		RETURN false;
	END IF;
	UPDATE {schema}postroom_outbox AS o SET last_error = left(error, 2000), locked_by = NULL,
		locked_until = NULL, updated_at = at,
		status = CASE WHEN permanent OR o.attempts >= tries THEN 'dead' ELSE 'pending' END,
		next_attempt_at = CASE WHEN permanent OR o.attempts >= tries THEN o.next_attempt_at
			ELSE at + coalesce(retry_in, {schema}postroom_worker_backoff(o.attempts)) END
	WHERE o.id = postroom_nack.id
	RETURNING o.seq, o.key, o.topic, o.namespace, o.attempts, o.status, o.last_attempt_at INTO failed;
	PERFORM {schema}postroom_worker_record('', postroom_nack.id::text, failed.attempts,
		at - failed.last_attempt_at, worker, left(error, 2000));
	IF failed.status = 'dead' THEN
		PERFORM {schema}postroom_worker_unblock(ARRAY[failed.key::text], ARRAY[failed.topic::text],
			ARRAY[failed.namespace::text]);
	ELSIF failed.key IS NOT NULL THEN
		PERFORM {schema}postroom_worker_return(ARRAY(SELECT o.id FROM {schema}postroom_outbox AS o
			WHERE o.key = failed.key AND o.topic = failed.topic AND o.namespace = failed.namespace
			AND o.state = 'scheduled' AND o.status = 'processing' AND o.locked_by = worker AND o.seq > failed.seq
			ORDER BY o.id FOR UPDATE));
	END IF;
	RETURN true;
END $$;

CREATE FUNCTION {schema}postroom_release(worker uuid, ids uuid[], claims bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	RETURN {schema}postroom_worker_return(
		{schema}postroom_worker_leased('postroom_release', worker, ids, claims));
END $$;

-- The lease begins anew.
CREATE FUNCTION {schema}postroom_renew(worker uuid, ids uuid[], claims bigint[],
	lease interval DEFAULT '30 seconds') RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	period interval := coalesce(lease, '30 seconds');
	mine uuid[];
BEGIN
	PERFORM {schema}postroom_worker_check_claim('postroom_renew', 1, period, 1);
	mine := {schema}postroom_worker_leased('postroom_renew', worker, ids, claims);
	UPDATE {schema}postroom_outbox AS o SET locked_until = clock_timestamp() + period,
		updated_at = clock_timestamp()
	WHERE o.id = ANY (mine);
	RETURN cardinality(mine);
END $$;

-- Only roles that are granted these functions work with them: docs/postgres-roles.sql.
REVOKE ALL ON FUNCTION {schema}postroom_claim, {schema}postroom_ack, {schema}postroom_nack,
	{schema}postroom_release, {schema}postroom_renew, {schema}postroom_worker_in_scope,
	{schema}postroom_worker_require, {schema}postroom_worker_check, {schema}postroom_worker_check_claim,
	{schema}postroom_worker_pattern, {schema}postroom_worker_backoff, {schema}postroom_worker_record,
	{schema}postroom_worker_lanes, {schema}postroom_worker_take_over, {schema}postroom_worker_unblock,
	{schema}postroom_worker_sweep, {schema}postroom_worker_hold, {schema}postroom_worker_join_keys,
	{schema}postroom_worker_find_scheduled, {schema}postroom_worker_find_unkeyed,
	{schema}postroom_worker_ready, {schema}postroom_worker_find_in,
	{schema}postroom_worker_find_in_lanes, {schema}postroom_worker_paths, {schema}postroom_worker_choose,
	{schema}postroom_worker_lease, {schema}postroom_worker_reclaim, {schema}postroom_worker_leased,
	{schema}postroom_worker_return FROM PUBLIC;
