-- The ctid of the ready message v.seq of v.lane.
(SELECT ctid FROM {schema}postroom_outbox AS o
	WHERE o.status = 'pending' AND o.state = 'ready' AND {lane} = v.lane AND o.seq = v.seq LIMIT 1)
