/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Only JSON without an error is an acknowledgement, whatever else the
 *    answer says.
 */
#include "broker/nats/reply.h"

#include <stdlib.h>

struct pr_span pr_nats_member(struct pr_span object, const char *name)
{
	struct pr_json_members walk;
	struct pr_span found, value;

	if (!object.data || pr_json_kind(object) != '{')
		return (struct pr_span){ 0 };
	walk = pr_json_members(object);
	while (pr_json_next(&walk, &found, &value)) {
		if (pr_json_is(found, name))
			return value;
	}
	return (struct pr_span){ 0 };
}

int64_t pr_nats_number(struct pr_span object, const char *name)
{
	struct pr_span value = pr_nats_member(object, name);

	return value.data && pr_json_kind(value) == '0' ? strtoll(value.data, NULL, 10) : 0;
}

void pr_nats_read_reply(natsMsg *msg, struct pr_nats_answer *ret)
{
	struct pr_span data = { natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg) };
	struct pr_span stream, error, text;

	if (!data.data || !pr_json_check(data.data, data.len, NULL) || pr_json_kind(data) != '{')
		return;
	ret->json = data;
	stream = pr_nats_member(data, "\"stream\"");
	error = pr_nats_member(data, "\"error\"");
	ret->acknowledged = stream.data && pr_json_kind(stream) == '"' && !error.data;
	ret->code = pr_nats_number(error, "\"code\"");
	ret->error = pr_nats_number(error, "\"err_code\"");
	text = pr_nats_member(error, "\"description\"");
	if (text.data && pr_json_kind(text) == '"')
		pr_json_decode(text, ret->text);
}
