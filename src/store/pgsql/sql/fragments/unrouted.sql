-- In the scope, and matched by no route.
(:namespace IS NULL OR namespace = :namespace) AND (:topic IS NULL OR topic LIKE :topic)
	AND (:tenant_id IS NULL OR tenant_id = :tenant_id) AND NOT (true {rules})
