#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# worker.sh URL: delivers messages until Ctrl-C, by psql.
set -eu
worker=$(cat /proc/sys/kernel/random/uuid)
lease=30 # seconds

ask() { # statement, variables…
	local statement=$1
	shift
	psql -X -A -t -q -F $'\t' -v ON_ERROR_STOP=1 -v worker="$worker" -v lease="$lease s" "$@" "$url" <<<"$statement"
}

deliver() { # topic, key, order, total
	[ "$4" -gt 0 ] && echo "$1 $2 $3"
}

settle() { # function, id, claims
	ask "SELECT $1(:'worker', ARRAY[:'id']::uuid[], ARRAY[:claims])" -v id="$2" -v claims="$3" >/dev/null
}

work() { # delivers a batch; fails if there was none
	local batch end failed=' '
	end=$((SECONDS + lease / 2))
	batch=$(ask "SELECT id, claims, topic, coalesce(key, '-'), payload ->> 'order', payload ->> 'total'
		FROM postroom_claim(:'worker', 10, :'lease')")
	[ -n "$batch" ] || return 1
	while IFS=$'\t' read -r id claims topic key order total; do
		# Never behind a failed message of its key, nor when the lease may end during the attempt.
		if [[ $failed == *" $key "* ]] || [ "$SECONDS" -ge "$end" ]; then
			settle postroom_release "$id" "$claims"
		elif deliver "$topic" "$key" "$order" "$total"; then
			settle postroom_ack "$id" "$claims"
		else
			ask "SELECT postroom_nack(:'worker', :'id', :claims, :'error')" -v id="$id" -v claims="$claims" \
				-v error="order $order costs nothing" >/dev/null
			[ "$key" = - ] || failed+="$key "
		fi
	done <<<"$batch"
}

url=$1
while true; do
	work || sleep 1
done
