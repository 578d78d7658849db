-- The number in the name of the notification channel.
-- doing: finding the notification channel
SELECT '{schema}postroom_inbox'::regclass::oid
