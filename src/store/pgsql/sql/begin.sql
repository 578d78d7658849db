-- Begins the transaction of the steps behind it.
-- doing: beginning a transaction
BEGIN
