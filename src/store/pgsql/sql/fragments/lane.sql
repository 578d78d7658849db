-- The lane of a message, as the indexes have it.
((CASE WHEN key IS NULL THEN seq ELSE hashtext(key) END & 63) + 1)
