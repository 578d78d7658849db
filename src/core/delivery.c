/* SPDX-License-Identifier: Apache-2.0 */
/* Public accessors of a claimed message, so that the struct can grow. */
#include "core/delivery.h"

const char *postroom_delivery_id(const postroom_delivery *item)
{
	return item->id;
}

const char *postroom_delivery_ns(const postroom_delivery *item)
{
	return item->ns;
}

const char *postroom_delivery_topic(const postroom_delivery *item)
{
	return item->topic;
}

const char *postroom_delivery_key(const postroom_delivery *item)
{
	return item->key;
}

const char *postroom_delivery_tenant_id(const postroom_delivery *item)
{
	return item->tenant_id;
}

const char *postroom_delivery_dedupe_key(const postroom_delivery *item)
{
	return item->dedupe_key;
}

const char *postroom_delivery_correlation_id(const postroom_delivery *item)
{
	return item->correlation_id;
}

const char *postroom_delivery_content_type(const postroom_delivery *item)
{
	return item->content_type;
}

const char *postroom_delivery_headers(const postroom_delivery *item)
{
	return item->headers;
}

const char *postroom_delivery_payload(const postroom_delivery *item, size_t *ret_len)
{
	if (ret_len)
		*ret_len = item->payload_len;
	return item->payload;
}

const void *postroom_delivery_body(const postroom_delivery *item, size_t *ret_len)
{
	if (ret_len)
		*ret_len = item->body_len;
	return item->body;
}

int postroom_delivery_attempt(const postroom_delivery *item)
{
	return item->attempt;
}

int64_t postroom_delivery_created_at_us(const postroom_delivery *item)
{
	return item->created_at_us;
}

postroom_verdict postroom_delivery_verdict(const postroom_delivery *item)
{
	return item->verdict;
}

void postroom_delivery_judge(postroom_delivery *item, postroom_verdict verdict, const char *reason)
{
	item->verdict = verdict;
	item->reason = reason;
}

void postroom_delivery_retry_in(postroom_delivery *item, int64_t delay_ms)
{
	item->retry_in_ms = delay_ms;
}

int postroom_delivery_settled(const postroom_delivery *item)
{
	return item->settled;
}

int postroom_delivery_is_dead(const postroom_delivery *item)
{
	return item->dead;
}
