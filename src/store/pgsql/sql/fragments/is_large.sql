-- Such a message is claimed without its content, which is loaded after the commit. With :max_bytes = 0
-- every message is.
(bytes > 262144 OR :max_bytes = 0)
