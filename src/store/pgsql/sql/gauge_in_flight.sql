-- Messages in flight under leases of lanes.
-- doing: collecting figures
SELECT coalesce(sum(cardinality(in_flight)), 0)::bigint FROM {schema}postroom_lanes
