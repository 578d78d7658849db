-- For the statements behind this one in its transaction: finds keys by their index, whatever the
-- statistics say.
-- doing: choosing how to read a table
SET LOCAL enable_seqscan = off
