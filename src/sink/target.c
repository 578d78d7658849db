/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Values of a message are escaped by the receiver's rule. The operator's template is checked at
 *    open and used unchanged.
 * 2. Escaping is injective: two values never give the same name.
 * 3. One function parses templates, so that the checked template is the used one.
 */
#include "sink/target.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define FIELD_MAX 40 /* of a field's name, shown in an error */

static const char *const fields[] = { "topic", "namespace", "tenant", "key", NULL };

/* A piece of a template: literal text, or a field. */
struct piece {
	const char *start;
	size_t len;
	bool field;
};

/* Returns the next piece, or false at the end. An unpaired brace is a field of no length. */
static bool next_piece(const char **at, struct piece *ret)
{
	const char *start = *at;

	if (!*start)
		return false;
	if ((start[0] == '{' || start[0] == '}') && start[1] == start[0]) {
		*ret = (struct piece){ .start = start, .len = 1 };
		*at = start + 2;
		return true;
	}
	if (start[0] == '{') {
		size_t len = strcspn(start + 1, "{}");

		*ret = (struct piece){ .start = start + 1, .field = true };
		if (start[1 + len] == '}')
			ret->len = len;
		*at = start + 1 + len + (start[1 + len] == '}');
		return true;
	}
	*ret = (struct piece){ .start = start, .field = start[0] == '}' };
	if (!ret->field)
		ret->len = strcspn(start, "{}");
	*at = start + (ret->field ? 1 : ret->len);
	return true;
}

static bool is_field(const struct piece *piece, const char *name)
{
	return piece->field && strlen(name) == piece->len &&
	       memcmp(piece->start, name, piece->len) == 0;
}

static bool is_known(const struct piece *piece)
{
	for (size_t i = 0; fields[i]; i++) {
		if (is_field(piece, fields[i]))
			return true;
	}
	return false;
}

static int refuse_field(const struct piece *piece, struct pr_err *err)
{
	char name[FIELD_MAX + 1];
	const char *nearest;

	if (piece->len == 0)
		return pr_err_set(err, POSTROOM_SINK,
				  "the braces of the target do not pair; a literal brace "
				  "is written twice: {{ or }}");
	snprintf(name, sizeof(name), "%.*s", (int)(piece->len < FIELD_MAX ? piece->len : FIELD_MAX),
		 piece->start);
	nearest = pr_text_nearest(name, fields);
	if (nearest)
		return pr_err_set(err, POSTROOM_SINK,
				  "the target's {%s} is unknown; did you mean {%s}?", name,
				  nearest);
	return pr_err_set(err, POSTROOM_SINK,
			  "the target's {%s} is unknown; there are {topic}, {namespace}, {tenant} "
			  "and {key}; write a literal brace twice",
			  name);
}

int pr_target_check(const char *template, const struct pr_target_rule *rule, struct pr_err *err)
{
	struct piece piece;

	while (next_piece(&template, &piece)) {
		if (piece.field && !is_known(&piece))
			return refuse_field(&piece, err);
		for (size_t i = 0; rule->text && !piece.field && i < piece.len; i++) {
			if (!rule->text(piece.start[i]))
				return pr_err_set(err, POSTROOM_SINK,
						  "the target cannot contain \"%c\" (byte %02x)",
						  piece.start[i] >= ' ' && piece.start[i] < 0x7f
							  ? piece.start[i]
							  : '?',
						  (unsigned char)piece.start[i]);
		}
	}
	return POSTROOM_OK;
}

bool pr_target_uses(const char *template, const char *field)
{
	struct piece piece;

	if (!*template)
		return strcmp(field, "topic") == 0;
	while (next_piece(&template, &piece)) {
		if (is_field(&piece, field))
			return true;
	}
	return false;
}

bool pr_target_is_template(const char *text)
{
	struct piece piece;

	while (next_piece(&text, &piece)) {
		if (is_known(&piece))
			return true;
	}
	return false;
}

static const char *value_of(const struct piece *piece, const postroom_delivery *item)
{
	const char *value = item->key;

	if (is_field(piece, "topic"))
		value = item->topic;
	else if (is_field(piece, "namespace"))
		value = item->ns;
	else if (is_field(piece, "tenant"))
		value = item->tenant_id;
	return value ? value : "";
}

static bool is_escape_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
}

/* Where the escape character is also a plain character, it must not look like an escape. */
static bool looks_like_escape(const struct pr_target_rule *rule, const char *at)
{
	return rule->escape && *at == rule->escape && is_escape_digit(at[1]) &&
	       is_escape_digit(at[2]);
}

static void put_part(struct pr_buf *out, const struct pr_target_rule *rule, const char *value)
{
	const char *start = value;

	for (; *value; value++) {
		bool lone = rule->tokens && *value == '.' &&
			    (value == start || value[-1] == '.' || !value[1]);

		if (!lone && (!rule->value || rule->value(*value)) &&
		    !looks_like_escape(rule, value))
			pr_buf_putc(out, *value);
		else
			pr_buf_printf(out, "%c%02X", rule->escape, (unsigned char)*value);
	}
}

int pr_target_put(struct pr_buf *out, const char *template, const struct pr_target_rule *rule,
		  const postroom_delivery *item, struct pr_err *err)
{
	const char *at = *template ? template : "{topic}";
	size_t before = out->len;
	struct piece piece;

	while (next_piece(&at, &piece)) {
		if (piece.field)
			put_part(out, rule, value_of(&piece, item));
		else
			pr_buf_append(out, piece.start, piece.len);
	}
	if (out->failed)
		return pr_err_nomem(err);
	if (out->len == before)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the target \"%s\" is empty for this message: it has no such "
				  "value",
				  template);
	if (rule->max != 0 && out->len - before > rule->max)
		return pr_err_set(err, POSTROOM_INVALID,
				  "the target \"%s\" is too long for this message: a name has at "
				  "most %zu bytes",
				  template, rule->max);
	return POSTROOM_OK;
}
