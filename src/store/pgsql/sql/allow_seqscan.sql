-- Ends what avoid_seqscan has begun: the plan of a user's statement is its own.
-- doing: choosing how to read a table
SET LOCAL enable_seqscan TO DEFAULT
