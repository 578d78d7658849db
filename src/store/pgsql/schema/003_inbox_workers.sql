-- compatible-with: 1
-- Workers in any language run the jobs of a handler with these functions alone (S1), beside `postroom
-- consume` and at the same time. There are no lanes in the inbox: all its messages are scheduled. The
-- rest is as in 002_workers.sql, where the reasons are.

CREATE FUNCTION {schema}postroom_worker_unblock_jobs(keys text[], topics text[], handlers text[])
	RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM {schema}postroom_inbox WHERE status = 'pending' AND state = 'held') THEN
		RETURN;
	END IF;
	UPDATE {schema}postroom_inbox AS i SET state = 'scheduled'
	WHERE i.status = 'pending' AND i.state = 'held' AND i.seq = ANY (ARRAY(
		SELECT h.seq FROM (SELECT DISTINCT * FROM unnest(keys, topics, handlers)
			AS k(key, topic, namespace) WHERE k.key IS NOT NULL) AS k
		CROSS JOIN LATERAL (SELECT h.seq FROM {schema}postroom_inbox AS h
			WHERE h.key = k.key COLLATE "C" AND h.topic = k.topic COLLATE "C"
			AND h.namespace = k.namespace COLLATE "C" AND h.status = 'pending' AND h.state = 'held'
			AND h.seq < coalesce((SELECT b.seq FROM {schema}postroom_inbox AS b
				WHERE b.key = k.key COLLATE "C" AND b.topic = k.topic COLLATE "C"
				AND b.namespace = k.namespace COLLATE "C" AND b.state = 'scheduled'
				AND b.status IN ('pending', 'active') ORDER BY b.seq LIMIT 1),
				9223372036854775807)
			ORDER BY h.seq LIMIT 500) AS h));
END $$;

CREATE FUNCTION {schema}postroom_worker_sweep_jobs() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	keys text[];
	topics text[];
	handlers text[];
BEGIN
	WITH RECURSIVE k AS (
		(SELECT i.key, i.topic, i.namespace FROM {schema}postroom_inbox AS i
		WHERE i.status = 'pending' AND i.state = 'held' ORDER BY i.key, i.topic, i.namespace LIMIT 1)
		UNION ALL
		SELECT n.* FROM k CROSS JOIN LATERAL (
			SELECT i.key, i.topic, i.namespace FROM {schema}postroom_inbox AS i
			WHERE i.status = 'pending' AND i.state = 'held'
			AND (i.key, i.topic, i.namespace) > (k.key, k.topic, k.namespace)
			ORDER BY i.key, i.topic, i.namespace LIMIT 1) AS n)
	SELECT array_agg(k.key), array_agg(k.topic), array_agg(k.namespace)
	INTO keys, topics, handlers FROM k;
	PERFORM {schema}postroom_worker_unblock_jobs(keys, topics, handlers);
END $$;

-- See postroom_worker_hold().
CREATE FUNCTION {schema}postroom_worker_hold_jobs(seqs bigint[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	behind bigint[];
	blockers bigint[];
	locked bigint[];
BEGIN
	WITH keys AS MATERIALIZED (
		SELECT DISTINCT i.key, i.topic, i.namespace FROM {schema}postroom_inbox AS i
		WHERE i.seq = ANY (seqs) AND i.key IS NOT NULL
	), first AS MATERIALIZED (
		SELECT k.*, b.seq AS first_seq FROM keys AS k CROSS JOIN LATERAL (
			(SELECT b.seq FROM {schema}postroom_inbox AS b
			WHERE b.key = k.key AND b.topic = k.topic AND b.namespace = k.namespace
			AND b.state = 'scheduled' AND b.status IN ('pending', 'active') AND b.seq <> ALL (seqs)
			ORDER BY b.seq LIMIT 1)
			UNION ALL
			(SELECT b.seq FROM {schema}postroom_inbox AS b
			WHERE b.key = k.key AND b.topic = k.topic AND b.namespace = k.namespace
			AND b.state = 'held' AND b.status = 'pending' ORDER BY b.seq LIMIT 1)
			ORDER BY 1 LIMIT 1) AS b
	)
	SELECT array_agg(i.seq), array_agg(f.first_seq) INTO behind, blockers
	FROM {schema}postroom_inbox AS i JOIN first AS f USING (key, topic, namespace)
	WHERE i.seq = ANY (seqs) AND i.seq > f.first_seq;
	IF behind IS NULL THEN
		RETURN seqs;
	END IF;
	SELECT array_agg(b.seq) INTO locked FROM (SELECT b.seq FROM {schema}postroom_inbox AS b
		WHERE b.seq = ANY (blockers) AND b.state IN ('scheduled', 'held') AND (b.status = 'pending'
		OR (b.status = 'active' AND b.last_attempt_at < clock_timestamp() - interval '100 ms'))
		ORDER BY b.seq FOR SHARE SKIP LOCKED) AS b;
	UPDATE {schema}postroom_inbox AS i SET state = 'held' WHERE i.seq = ANY (ARRAY(
		SELECT i.seq FROM {schema}postroom_inbox AS i WHERE i.status = 'pending' AND i.seq = ANY (ARRAY(
			SELECT w.seq FROM unnest(behind, blockers) AS w(seq, blocker) WHERE w.blocker = ANY (locked)))
		ORDER BY i.seq FOR UPDATE SKIP LOCKED));
	RETURN ARRAY(SELECT u.seq FROM unnest(seqs) WITH ORDINALITY AS u(seq, n)
		WHERE u.seq <> ALL (behind) ORDER BY u.n);
END $$;

-- Chooses and locks due jobs: no more than 8 MiB, but always one, and never one before an earlier one of
-- its key.
CREATE FUNCTION {schema}postroom_worker_choose_jobs(scope {schema}postroom_worker_scope, most integer)
	RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	at timestamptz := clock_timestamp();
	handler text := scope.namespace COLLATE "C";
	due bigint[];
	free bigint[];
BEGIN
	FOR try IN 1..8 LOOP
		SELECT array_agg(i.seq ORDER BY i.seq) INTO due FROM (
			SELECT i.seq FROM {schema}postroom_inbox AS i
			WHERE i.namespace = handler COLLATE "C" AND i.status = 'pending' AND i.state = 'scheduled'
			AND i.next_attempt_at <= at
			AND {schema}postroom_worker_in_scope(i.namespace, i.topic, i.tenant_id, scope)
			ORDER BY i.next_attempt_at, i.seq LIMIT most FOR UPDATE SKIP LOCKED) AS i;
		free := {schema}postroom_worker_hold_jobs(coalesce(due, '{}'));
		EXIT WHEN free <> '{}' OR coalesce(cardinality(due), 0) < most;
	END LOOP;
	RETURN ARRAY(SELECT c.seq FROM (SELECT i.seq, sum(coalesce(pg_column_size(i.payload), 0)
			+ coalesce(octet_length(i.body), 0) + pg_column_size(i.headers)
			+ coalesce(pg_column_size(i.checkpoint), 0) + pg_column_size(i.steps))
			OVER (ORDER BY i.seq) AS bytes, row_number() OVER (ORDER BY i.seq) AS n
		FROM {schema}postroom_inbox AS i WHERE i.seq = ANY (free)) AS c
		WHERE c.bytes <= 8388608 OR c.n = 1 ORDER BY c.seq);
END $$;

CREATE FUNCTION {schema}postroom_worker_lease_jobs(seqs bigint[], worker uuid, lease interval,
	max_attempts integer, reason text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	at timestamptz := clock_timestamp();
	leased bigint[];
	keys text[];
	topics text[];
	handlers text[];
BEGIN
	WITH claimed AS (
		UPDATE {schema}postroom_inbox AS i SET state = 'scheduled', updated_at = at, claims = i.claims + 1,
			status = CASE WHEN i.attempts < max_attempts THEN 'active' ELSE 'dead' END,
			attempts = i.attempts + (i.attempts < max_attempts)::int,
			locked_by = CASE WHEN i.attempts < max_attempts THEN worker END,
			locked_until = CASE WHEN i.attempts < max_attempts THEN at + lease END,
			last_attempt_at = CASE WHEN i.attempts < max_attempts THEN at ELSE i.last_attempt_at END,
			last_error = CASE WHEN i.attempts < max_attempts THEN i.last_error
				ELSE coalesce(reason, i.last_error) END
		WHERE i.seq = ANY (seqs) AND i.status IN ('pending', 'active')
		RETURNING i.seq, i.status, i.key, i.topic, i.namespace
	)
	SELECT array_agg(c.seq) FILTER (WHERE c.status = 'active'),
		array_agg(c.key) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL),
		array_agg(c.topic) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL),
		array_agg(c.namespace) FILTER (WHERE c.status = 'dead' AND c.key IS NOT NULL)
	INTO leased, keys, topics, handlers FROM claimed AS c;
	IF keys IS NOT NULL THEN
		PERFORM {schema}postroom_worker_unblock_jobs(keys, topics, handlers);
	END IF;
	RETURN leased;
END $$;

CREATE FUNCTION {schema}postroom_worker_reclaim_job(scope {schema}postroom_worker_scope, worker uuid,
	lease interval, max_attempts integer) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	lost record;
	leased bigint[];
BEGIN
	WHILE leased IS NULL LOOP
		SELECT i.seq, i.id, i.attempts INTO lost FROM {schema}postroom_inbox AS i
		WHERE i.status = 'active' AND i.locked_until < (SELECT clock_timestamp())
			AND {schema}postroom_worker_in_scope(i.namespace, i.topic, i.tenant_id, scope)
			AND (i.key IS NULL OR NOT EXISTS (SELECT FROM {schema}postroom_inbox AS b
				WHERE b.key = i.key AND b.topic = i.topic AND b.namespace = i.namespace
				AND b.seq < i.seq AND b.state = 'scheduled' AND b.status IN ('pending', 'active')))
			AND (i.key IS NULL OR NOT EXISTS (SELECT FROM {schema}postroom_inbox AS b
				WHERE b.key = i.key AND b.topic = i.topic AND b.namespace = i.namespace
				AND b.seq < i.seq AND b.state = 'held' AND b.status = 'pending'))
		ORDER BY i.locked_until, i.seq LIMIT 1 FOR UPDATE OF i SKIP LOCKED;
		EXIT WHEN NOT FOUND;
		leased := {schema}postroom_worker_lease_jobs(ARRAY[lost.seq], worker, lease, max_attempts,
			'the lease ran out during the last attempt: its worker died or hung');
		PERFORM {schema}postroom_worker_record(scope.namespace, lost.id, lost.attempts, NULL, NULL,
			CASE WHEN leased IS NULL
				THEN 'the lease ran out during the last attempt: its worker died or hung'
				ELSE 'the lease expired during the attempt: its worker died or hung' END);
	END LOOP;
	RETURN leased;
END $$;

-- Claims due jobs of a handler, those of a key together and in order.
CREATE FUNCTION {schema}postroom_inbox_claim(worker uuid, handler text, OUT id text, OUT claims bigint,
	OUT attempts integer, max_jobs integer DEFAULT 100, lease interval DEFAULT '30 seconds',
	INOUT topic text DEFAULT NULL, OUT key text, OUT tenant_id uuid, OUT correlation_id text,
	OUT headers jsonb, OUT content_type text, OUT payload jsonb, OUT body bytea, OUT checkpoint jsonb,
	OUT steps jsonb, OUT created_at timestamptz, max_attempts integer DEFAULT 10)
	RETURNS SETOF record
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	period interval := coalesce(lease, '30 seconds');
	most integer := coalesce(max_jobs, 100);
	-- No row counts more attempts.
	tries integer := least(coalesce(max_attempts, 10), 1000000);
	scope {schema}postroom_worker_scope;
	leased bigint[];
BEGIN
	PERFORM {schema}postroom_worker_check('postroom_inbox_claim', worker);
	PERFORM {schema}postroom_worker_check_claim('postroom_inbox_claim', most, period, tries);
	PERFORM {schema}postroom_worker_require(handler <> '',
		'postroom_inbox_claim: handler must be the name of a handler');
	scope := ROW(handler, {schema}postroom_worker_pattern(topic), NULL, NULL, NULL);
	leased := {schema}postroom_worker_reclaim_job(scope, worker, period, tries);
	IF leased IS NULL THEN
		leased := {schema}postroom_worker_lease_jobs({schema}postroom_worker_choose_jobs(scope, most),
			worker, period, tries, NULL);
	END IF;
	RETURN QUERY SELECT i.id::text, i.claims::bigint, i.attempts::integer, i.topic::text, i.key::text,
		i.tenant_id, i.correlation_id::text, i.headers::jsonb, i.content_type::text, i.payload::jsonb,
		i.body::bytea, i.checkpoint::jsonb, i.steps::jsonb, i.created_at::timestamptz
	FROM {schema}postroom_inbox AS i WHERE i.seq = ANY (leased) ORDER BY i.seq;
	IF random() < (CASE WHEN FOUND THEN 0.01 ELSE 0.1 END) THEN
		PERFORM {schema}postroom_worker_sweep_jobs();
	END IF;
END $$;

CREATE FUNCTION {schema}postroom_worker_leased_jobs(caller text, worker uuid, handler text, ids text[],
	claims bigint[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM {schema}postroom_worker_check(caller, worker);
	PERFORM {schema}postroom_worker_require(cardinality(ids) = cardinality(claims),
		caller || ': ids and claims must be arrays of the same length');
	RETURN ARRAY(SELECT i.seq FROM unnest(ids, claims) AS v(id, token)
		JOIN {schema}postroom_inbox AS i ON i.id = ANY (ARRAY[v.id COLLATE "C"])
			AND i.handler_name = handler COLLATE "C"
		WHERE i.claims = v.token AND i.status = 'active' AND i.locked_by = worker
		ORDER BY i.seq FOR UPDATE OF i);
END $$;

CREATE FUNCTION {schema}postroom_worker_return_jobs(seqs bigint[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	count bigint;
BEGIN
	UPDATE {schema}postroom_inbox AS i SET status = 'pending', attempts = greatest(i.attempts - 1, 0),
		locked_by = NULL, locked_until = NULL, updated_at = clock_timestamp()
	WHERE i.seq = ANY (seqs);
	GET DIAGNOSTICS count = ROW_COUNT;
	RETURN count;
END $$;

-- Completed. In the transaction of the job's effect it makes both happen once.
CREATE FUNCTION {schema}postroom_inbox_ack(worker uuid, handler text, ids text[], claims bigint[])
	RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	at timestamptz := clock_timestamp();
	mine bigint[] := {schema}postroom_worker_leased_jobs('postroom_inbox_ack', worker, handler, ids, claims);
	keys text[];
	topics text[];
	handlers text[];
BEGIN
	WITH done AS (
		UPDATE {schema}postroom_inbox AS i SET status = 'completed', last_error = NULL, processed_at = at,
			locked_by = NULL, locked_until = NULL, updated_at = at
		WHERE i.seq = ANY (mine) RETURNING i.key, i.topic, i.namespace
	)
	SELECT array_agg(d.key), array_agg(d.topic), array_agg(d.namespace)
	INTO keys, topics, handlers FROM done AS d WHERE d.key IS NOT NULL;
	IF keys IS NOT NULL THEN
		PERFORM {schema}postroom_worker_unblock_jobs(keys, topics, handlers);
	END IF;
	RETURN cardinality(mine);
END $$;

-- Failed; releases the later jobs of its key that this worker has claimed, as postroom_nack() does.
CREATE FUNCTION {schema}postroom_inbox_nack(worker uuid, handler text, id text, claims bigint,
	error text DEFAULT NULL, permanent boolean DEFAULT false, retry_in interval DEFAULT NULL,
	max_attempts integer DEFAULT 10) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
	at timestamptz := clock_timestamp();
	tries integer := coalesce(max_attempts, 10);
	mine bigint[];
	failed record;
BEGIN
	PERFORM {schema}postroom_worker_require(
		coalesce(retry_in, '0') BETWEEN interval '0' AND interval '3650 days',
		'postroom_inbox_nack: retry_in must be between 0 and 3650 days');
	PERFORM {schema}postroom_worker_check_claim('postroom_inbox_nack', 1, interval '1 second', tries);
	mine := {schema}postroom_worker_leased_jobs('postroom_inbox_nack', worker, handler, ARRAY[id],
		ARRAY[claims]);
	IF mine = '{}' THEN
		RETURN false;
	END IF;
	UPDATE {schema}postroom_inbox AS i SET last_error = left(error, 2000), locked_by = NULL,
		locked_until = NULL, updated_at = at,
		status = CASE WHEN permanent OR i.attempts >= tries THEN 'dead' ELSE 'pending' END,
		next_attempt_at = CASE WHEN permanent OR i.attempts >= tries THEN i.next_attempt_at
			ELSE at + coalesce(retry_in, {schema}postroom_worker_backoff(i.attempts)) END
	WHERE i.seq = ANY (mine)
	RETURNING i.seq, i.key, i.topic, i.namespace, i.attempts, i.status, i.last_attempt_at INTO failed;
	PERFORM {schema}postroom_worker_record(failed.namespace, postroom_inbox_nack.id, failed.attempts,
		at - failed.last_attempt_at, worker, left(error, 2000));
	IF failed.status = 'dead' THEN
		PERFORM {schema}postroom_worker_unblock_jobs(ARRAY[failed.key::text], ARRAY[failed.topic::text],
			ARRAY[failed.namespace::text]);
	ELSIF failed.key IS NOT NULL THEN
		PERFORM {schema}postroom_worker_return_jobs(ARRAY(SELECT i.seq FROM {schema}postroom_inbox AS i
			WHERE i.key = failed.key AND i.topic = failed.topic AND i.namespace = failed.namespace
			AND i.state = 'scheduled' AND i.status = 'active' AND i.locked_by = worker AND i.seq > failed.seq
			ORDER BY i.seq FOR UPDATE));
	END IF;
	RETURN true;
END $$;

CREATE FUNCTION {schema}postroom_inbox_release(worker uuid, handler text, ids text[], claims bigint[])
	RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	RETURN {schema}postroom_worker_return_jobs(
		{schema}postroom_worker_leased_jobs('postroom_inbox_release', worker, handler, ids, claims));
END $$;

CREATE FUNCTION {schema}postroom_inbox_renew(worker uuid, handler text, ids text[], claims bigint[],
	lease interval DEFAULT '30 seconds') RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	period interval := coalesce(lease, '30 seconds');
	mine bigint[];
BEGIN
	PERFORM {schema}postroom_worker_check_claim('postroom_inbox_renew', 1, period, 1);
	mine := {schema}postroom_worker_leased_jobs('postroom_inbox_renew', worker, handler, ids, claims);
	UPDATE {schema}postroom_inbox AS i SET locked_until = clock_timestamp() + period,
		updated_at = clock_timestamp()
	WHERE i.seq = ANY (mine);
	RETURN cardinality(mine);
END $$;

REVOKE ALL ON FUNCTION {schema}postroom_inbox_claim, {schema}postroom_inbox_ack,
	{schema}postroom_inbox_nack, {schema}postroom_inbox_release, {schema}postroom_inbox_renew,
	{schema}postroom_worker_unblock_jobs, {schema}postroom_worker_sweep_jobs,
	{schema}postroom_worker_hold_jobs, {schema}postroom_worker_choose_jobs,
	{schema}postroom_worker_lease_jobs, {schema}postroom_worker_reclaim_job,
	{schema}postroom_worker_leased_jobs, {schema}postroom_worker_return_jobs FROM PUBLIC;
