/* SPDX-License-Identifier: Apache-2.0 */
#include "core/finding.h"

#include "base/time.h"

#include <stdarg.h>
#include <stdio.h>

enum { TITLE, DETAIL, ADVICE, COMMAND };

#define TEXT_MAX ((size_t)64 * 1024)

const char *const pr_level_names[] = { "ok", "note", "warning", "problem", "skipped", NULL };

static const char *text_of(const struct pr_checkup *checkup, int which)
{
	return checkup->texts[which].len > 0 ? checkup->texts[which].data : NULL;
}

/* Reports the finding that was being built, if any. */
static void pass_on(struct pr_checkup *checkup)
{
	const char *title = text_of(checkup, TITLE);
	const struct pr_finding finding = {
		.check = checkup->check,
		.level = checkup->level,
		.title = title ? title : checkup->title,
		.detail = text_of(checkup, DETAIL),
		.advice = text_of(checkup, ADVICE),
		.command = text_of(checkup, COMMAND),
	};

	if (!checkup->building)
		return;
	checkup->building = false;
	checkup->fn(checkup->context, &finding);
}

__attribute__((format(printf, 2, 0))) static void add(struct pr_buf *text, const char *format,
						      va_list args)
{
	char piece[4000];

	text->max = TEXT_MAX;
	vsnprintf(piece, sizeof(piece), format, args);
	pr_buf_puts(text, piece);
}

static void begin_finding(struct pr_checkup *checkup, enum pr_level level)
{
	pass_on(checkup);
	checkup->building = checkup->any = true;
	checkup->level = level;
	for (int i = 0; i <= COMMAND; i++)
		pr_buf_reset(&checkup->texts[i]);
}

bool pr_check_begin(struct pr_checkup *checkup, const char *check, const char *title)
{
	checkup->check = check;
	checkup->title = title;
	checkup->any = false;
	if (!checkup->until_us || pr_mono_us() < checkup->until_us)
		return true;
	pr_found_skipped(checkup, "The time limit for all checks passed before this check began.",
			 NULL);
	pr_check_end(checkup);
	return false;
}

void pr_check_end(struct pr_checkup *checkup)
{
	if (!checkup->any)
		begin_finding(checkup, PR_LEVEL_OK);
	pass_on(checkup);
	checkup->check = checkup->title = NULL;
}

void pr_found(struct pr_checkup *checkup, enum pr_level level, const char *title, ...)
{
	va_list args;

	begin_finding(checkup, level);
	va_start(args, title);
	add(&checkup->texts[TITLE], title, args);
	va_end(args);
}

void pr_found_detail(struct pr_checkup *checkup, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(&checkup->texts[DETAIL], format, args);
	va_end(args);
}

void pr_found_advice(struct pr_checkup *checkup, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(&checkup->texts[ADVICE], format, args);
	va_end(args);
}

void pr_found_command(struct pr_checkup *checkup, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(&checkup->texts[COMMAND], format, args);
	va_end(args);
}

void pr_found_skipped(struct pr_checkup *checkup, const char *why, const char *advice)
{
	pr_found(checkup, PR_LEVEL_SKIPPED, "Not checked: %s", checkup->title);
	pr_found_detail(checkup, "%s", why);
	if (advice)
		pr_found_advice(checkup, "%s", advice);
}

void pr_checkup_release(struct pr_checkup *checkup)
{
	for (int i = 0; i <= COMMAND; i++)
		pr_buf_release(&checkup->texts[i]);
}
