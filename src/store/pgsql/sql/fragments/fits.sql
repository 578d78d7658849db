-- Whether a candidate is among the first :max_bytes of all lanes, but always one is.
((SELECT bytes FROM total) <= :max_bytes OR (
	SELECT sum(m.bytes) <= :max_bytes OR count(*) = 1 FROM candidates AS m
	WHERE (m.lane, m.seq) <= (candidates.lane, candidates.seq)))
