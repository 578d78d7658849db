-- Whether any lane is leased.
-- doing: changing how messages are leased
SELECT EXISTS (SELECT FROM {schema}postroom_lanes WHERE locked_by IS NOT NULL)
