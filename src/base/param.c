/* SPDX-License-Identifier: Apache-2.0 */
#include "base/param.h"

#include "base/text.h"
#include "base/time.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(const struct pr_param *param, void *target)
{
	return (char *)target + param->offset;
}

static void clear(const struct pr_param *param, void *target)
{
	switch (param->type) {
	case PR_PARAM_STRING:
		*(const char **)field(param, target) = NULL;
		break;
	case PR_PARAM_FLAG:
		*(bool *)field(param, target) = false;
		break;
	case PR_PARAM_LIST:
		((struct pr_param_list *)field(param, target))->count = 0;
		break;
	default:
		*(int64_t *)field(param, target) = 0;
	}
}

void pr_params_defaults(const struct pr_param *table, void *target)
{
	for (const struct pr_param *param = table; param->name; param++) {
		clear(param, target);
		if (param->fallback)
			pr_param_set(param, target, param->fallback, NULL);
	}
}

bool pr_param_same_name(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b))
			return false;
	}
	return *a == *b;
}

/* Returns how many characters precede the '*' of a name that ends in one; otherwise 0. */
static size_t prefix_len(const char *known)
{
	size_t len = strlen(known);

	return len > 0 && known[len - 1] == '*' ? len - 1 : 0;
}

bool pr_param_matches(const char *known, const char *name)
{
	size_t len = prefix_len(known);

	if (len == 0)
		return pr_param_same_name(known, name);
	return strncmp(known, name, len) == 0 && name[len];
}

const struct pr_param *pr_param_find(const struct pr_param *table, const char *name)
{
	for (; table->name; table++) {
		if (pr_param_matches(table->name, name))
			return table;
	}
	return NULL;
}

static bool parse_number(const char *text, const char **ret_rest, int64_t *ret)
{
	char *rest;

	if ((*text < '0' || *text > '9') && *text != '-')
		return false;
	errno = 0;
	*ret = strtoll(text, &rest, 10);
	*ret_rest = rest;
	return errno == 0 && rest != text;
}

static bool read_int(const char *text, int64_t *ret)
{
	const char *rest;

	return parse_number(text, &rest, ret) && *rest == '\0';
}

static bool read_size(const char *text, int64_t *ret)
{
	static const char letters[] = "kmgt";
	const char *rest, *letter;
	int64_t unit = 1;

	if (!parse_number(text, &rest, ret))
		return false;
	letter = *rest ? strchr(letters, *rest | 0x20) : NULL;
	if (letter) {
		unit = (int64_t)1 << 10 * (letter - letters + 1);
		rest++;
		if (strcmp(rest, "iB") == 0)
			rest += 2;
	}
	if (strcmp(rest, "B") == 0)
		rest++;
	return *rest == '\0' && !__builtin_mul_overflow(*ret, unit, ret);
}

/* As an option, a flag has no text; as a setting, it may have no value. */
static bool read_flag(const char *text, bool *ret)
{
	static const char *const yes[] = { "", "true", "yes", "on", "1" };
	static const char *const no[] = { "false", "no", "off", "0" };

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
		if (strcmp(text, yes[i]) == 0) {
			*ret = true;
			return true;
		}
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
		if (strcmp(text, no[i]) == 0) {
			*ret = false;
			return true;
		}
	}
	return false;
}

static bool read_choice(const struct pr_param *param, const char *text, int64_t *ret)
{
	for (int64_t i = 0; param->choices[i]; i++) {
		if (pr_param_same_name(param->choices[i], text)) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static void show_number(const struct pr_param *param, int64_t number, char out[PR_DURATION_SIZE])
{
	if (param->type == PR_PARAM_DURATION || param->type == PR_PARAM_PERIOD)
		pr_duration_format(number, out);
	else
		snprintf(out, PR_DURATION_SIZE, "%" PRId64, number);
}

/* Describes the accepted values in words. */
static void describe(const struct pr_param *param, char *out, size_t size)
{
	static const char *const kinds[] = {
		[PR_PARAM_FLAG] = "true or false",
		[PR_PARAM_INT] = "a whole number",
		[PR_PARAM_DURATION] = "a duration like 250ms, 5s, 10m, 2h or 7d",
		[PR_PARAM_PERIOD] = "never or a duration like 250ms, 5s, 10m, 2h or 7d",
		[PR_PARAM_SIZE] = "a size like 4096, 64k or 1M",
	};
	char min[PR_DURATION_SIZE], max[PR_DURATION_SIZE];
	size_t used = 0;

	if (param->type == PR_PARAM_CHOICE) {
		for (size_t i = 0; param->choices[i] && used < size; i++) {
			const char *before = param->choices[i + 1] ? ", " : " or ";

			used += (size_t)snprintf(out + used, size - used, "%s%s",
						 i == 0 ? "" : before, param->choices[i]);
		}
		return;
	}
	show_number(param, param->min, min);
	show_number(param, param->max, max);
	if (param->type == PR_PARAM_FLAG)
		snprintf(out, size, "%s", kinds[param->type]);
	else if (param->max != 0)
		snprintf(out, size, "%s from %s to %s", kinds[param->type], min, max);
	else
		snprintf(out, size, "%s, at least %s", kinds[param->type], min);
}

static int refuse_value(const struct pr_param *param, const char *text, struct pr_err *err)
{
	char takes[200];

	describe(param, takes, sizeof(takes));
	return pr_err_set(err, POSTROOM_INVALID, "%s takes %s, not \"%.100s\"", param->name, takes,
			  text);
}

static int add_item(const struct pr_param *param, void *target, const char *text,
		    struct pr_err *err)
{
	struct pr_param_list *list = field(param, target);

	if (list->count == PR_PARAM_LIST_MAX)
		return pr_err_set(err, POSTROOM_INVALID, "%s can be given at most %d times",
				  param->name, PR_PARAM_LIST_MAX);
	list->items[list->count++] = text;
	return POSTROOM_OK;
}

int pr_param_set(const struct pr_param *param, void *target, const char *text, struct pr_err *err)
{
	int64_t number = 0;
	bool good = false;

	switch (param->type) {
	case PR_PARAM_STRING:
		*(const char **)field(param, target) = text;
		return POSTROOM_OK;
	case PR_PARAM_LIST:
		return add_item(param, target, text, err);
	case PR_PARAM_FLAG:
		if (!read_flag(text ? text : "", field(param, target)))
			return refuse_value(param, text, err);
		return POSTROOM_OK;
	case PR_PARAM_CHOICE:
		if (!read_choice(param, text, field(param, target)))
			return refuse_value(param, text, err);
		return POSTROOM_OK;
	case PR_PARAM_INT:
		good = read_int(text, &number);
		break;
	case PR_PARAM_SIZE:
		good = read_size(text, &number);
		break;
	case PR_PARAM_PERIOD:
		if (strcmp(text, "never") == 0) {
			*(int64_t *)field(param, target) = -1;
			return POSTROOM_OK;
		}
		/* fallthrough */
	case PR_PARAM_DURATION:
		good = pr_duration_parse(text, &number, NULL) == POSTROOM_OK;
		break;
	}
	if (!good || number < param->min || (param->max != 0 && number > param->max))
		return refuse_value(param, text, err);
	*(int64_t *)field(param, target) = number;
	return POSTROOM_OK;
}

const char *pr_param_nearest(const struct pr_param *table, const char *name)
{
	const char *nearest = NULL;

	for (; table->name; table++) {
		const char *pair[] = { nearest ? nearest : table->name, table->name, NULL };

		nearest = pr_text_nearest(name, pair);
	}
	return nearest;
}

int pr_params_set(const struct pr_param *table, void *target, const char *name, const char *text,
		  struct pr_err *err)
{
	const struct pr_param *param = pr_param_find(table, name);
	const char *nearest;

	if (param && prefix_len(param->name) > 0 &&
	    add_item(param, target, name + prefix_len(param->name), err) < 0)
		return err->status;
	if (param)
		return pr_param_set(param, target, text, err);
	nearest = pr_param_nearest(table, name);
	if (nearest)
		return pr_err_set(err, POSTROOM_INVALID,
				  "unknown setting \"%.60s\"; did you mean \"%s\"?", name,
				  nearest);
	return pr_err_set(err, POSTROOM_INVALID, "unknown setting \"%.60s\"", name);
}
