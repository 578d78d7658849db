-- Whether the outbox exists. A statement on a missing table would abort the caller's transaction.
-- doing: enqueue
SELECT to_regclass('{schema}postroom_outbox')
