/* SPDX-License-Identifier: Apache-2.0 */
#include "inbox/step.h"

#include "base/json.h"
#include "core/message.h"

#include <postroom/job.h>

#include <string.h>

int pr_step_check(const char *name, struct pr_err *err)
{
	if (!name)
		return pr_err_set(err, POSTROOM_INVALID, "the step's name is missing");
	return pr_name_check("the step's name", name, POSTROOM_STEP_MAX, err);
}

int pr_progress_check(const char *field, const char *json, struct pr_err *err)
{
	if (!json)
		return pr_err_set(err, POSTROOM_INVALID, "the %s is missing", field);
	return pr_value_check(field, json, strlen(json), POSTROOM_PAYLOAD_DEFAULT_MAX, err);
}

static struct pr_step *read_step(struct pr_span name, struct pr_span value, struct pr_arena *arena)
{
	PR_CLEANUP_BUF struct pr_buf plain = { 0 };
	struct pr_step *step = pr_arena_alloc(arena, sizeof(*step));
	struct pr_span member, is, result = { "null", 4 }, at = { "", 0 };
	struct pr_json_members walk;

	pr_json_decode(name, &plain);
	if (!step || plain.failed)
		return NULL;
	*step = (struct pr_step){ .name = pr_arena_strdup(arena, pr_buf_text(&plain)) };
	/* A row edited by hand may contain anything here: a named step counts as done. */
	if (pr_json_kind(value) == '{') {
		walk = pr_json_members(value);
		while (pr_json_next(&walk, &member, &is)) {
			if (pr_json_is(member, "\"result\""))
				result = is;
			else if (pr_json_is(member, "\"at\"") && pr_json_kind(is) == '"')
				at = (struct pr_span){ is.data + 1, is.len - 2 };
		}
	}
	step->result = pr_arena_copy(arena, result.data, result.len);
	step->at = pr_arena_copy(arena, at.data, at.len);
	return step->name && step->result && step->at ? step : NULL;
}

void pr_steps_add(struct pr_steps *steps, struct pr_step *step)
{
	struct pr_step **at = &steps->first;

	/* They are mostly in order; PostgreSQL sorts them by name. */
	if (steps->last && strcmp(steps->last->at, step->at) <= 0)
		at = &steps->last->next;
	while (*at && strcmp((*at)->at, step->at) <= 0)
		at = &(*at)->next;
	step->next = *at;
	*at = step;
	if (!step->next)
		steps->last = step;
}

int pr_steps_read(struct pr_steps *steps, const char *json, struct pr_arena *arena,
		  struct pr_err *err)
{
	struct pr_json_members walk = pr_json_members((struct pr_span){ json, strlen(json) });
	struct pr_span name, value;

	*steps = (struct pr_steps){ 0 };
	while (pr_json_next(&walk, &name, &value)) {
		struct pr_step *step = read_step(name, value, arena);

		if (!step)
			return pr_err_nomem(err);
		pr_steps_add(steps, step);
	}
	return POSTROOM_OK;
}

struct pr_step *pr_steps_find(const struct pr_steps *steps, const char *name)
{
	struct pr_step *step = steps->first;

	while (step && strcmp(step->name, name) != 0)
		step = step->next;
	return step;
}
