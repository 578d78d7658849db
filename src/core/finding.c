/* SPDX-License-Identifier: Apache-2.0 */
#include "core/finding.h"

#include "base/text.h"
#include "base/time.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TITLE, DETAIL, ADVICE, COMMAND };

#define TEXT_MAX ((size_t)64 * 1024)

const char *const pr_level_names[] = { "ok", "note", "warning", "problem", "skipped", NULL };

static const char *text_of(const struct pr_checkup *checkup, int which)
{
	const struct pr_buf *text = &checkup->texts[which];

	/* Half a command could drop or delete more than the whole one. */
	if (which == COMMAND && text->failed)
		return NULL;
	return text->len > 0 ? text->data : NULL;
}

/* The result of a check that did not end is unknown: neither ok nor a finding. */
static void replace_unfinished(struct pr_checkup *checkup)
{
	checkup->level = PR_LEVEL_SKIPPED;
	for (int i = 0; i <= COMMAND; i++)
		pr_buf_reset(&checkup->texts[i]);
	pr_buf_printf(&checkup->texts[TITLE], "Not checked: %s", checkup->title);
	pr_buf_puts(&checkup->texts[DETAIL], "Doctor was stopped before this check ended.");
}

/* Reports the finding that was being built, if any. */
static void pass_on(struct pr_checkup *checkup)
{
	struct pr_finding finding = { .check = checkup->check };

	if (!checkup->building)
		return;
	if (pr_stop_requested(checkup->stop))
		replace_unfinished(checkup);
	finding.level = checkup->level;
	finding.title = text_of(checkup, TITLE);
	if (!finding.title)
		finding.title = checkup->title;
	finding.detail = text_of(checkup, DETAIL);
	finding.advice = text_of(checkup, ADVICE);
	finding.command = text_of(checkup, COMMAND);
	checkup->building = false;
	checkup->fn(checkup->context, &finding);
}

/* As much as there is room for; of a character that does not fit, nothing. */
static void append_cut(struct pr_buf *text, const char *piece)
{
	size_t len = strlen(piece), room = TEXT_MAX - text->len, whole = 0;

	text->max = TEXT_MAX;
	if (len <= room) {
		pr_buf_append(text, piece, len);
		return;
	}
	while (whole < room) {
		size_t step = pr_utf8_length(piece + whole, len - whole);

		if (whole + (step ? step : 1) > room)
			break;
		whole += step ? step : 1;
	}
	pr_buf_append(text, piece, whole);
	text->failed = true;
}

__attribute__((format(printf, 2, 0))) static void add(struct pr_buf *text, const char *format,
						      va_list args)
{
	PR_CLEANUP_BUF struct pr_buf piece = { 0 };
	char start[1000];
	va_list again;
	int len;

	va_copy(again, args);
	len = vsnprintf(start, sizeof(start), format, args);
	if (len >= (int)sizeof(start) && pr_buf_reserve(&piece, (size_t)len)) {
		vsnprintf(piece.data, (size_t)len + 1, format, again);
		append_cut(text, piece.data);
	} else {
		append_cut(text, len < 0 ? "" : start);
	}
	if (len < 0 || piece.failed)
		text->failed = true;
	va_end(again);
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
	if (!pr_stop_requested(checkup->stop) &&
	    (!checkup->until_us || pr_mono_us() < checkup->until_us))
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
	checkup->check = checkup->title = checkup->subject = NULL;
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

static bool is_plain(const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_@%+:,./-";

	return *word && word[strspn(word, plain)] == '\0';
}

/* In $'…', which bash, zsh and ksh read: a line break in '…' would not survive the layout. */
static void put_escaped(struct pr_buf *out, const char *word)
{
	pr_buf_puts(out, "$'");
	for (; *word; word++) {
		if ((unsigned char)*word < 0x20 || *word == 0x7f)
			pr_buf_printf(out, "\\%03o", *word);
		else if (*word == '\'' || *word == '\\')
			pr_buf_printf(out, "\\%c", *word);
		else
			pr_buf_putc(out, *word);
	}
	pr_buf_putc(out, '\'');
}

void pr_found_command_word(struct pr_checkup *checkup, const char *word)
{
	struct pr_buf *out = &checkup->texts[COMMAND];

	out->max = TEXT_MAX;
	if (is_plain(word)) {
		pr_buf_puts(out, word);
		return;
	}
	if (pr_text_has_control(word)) {
		put_escaped(out, word);
		return;
	}
	pr_buf_putc(out, '\'');
	for (; *word; word++) {
		if (*word == '\'')
			pr_buf_puts(out, "'\\''");
		else
			pr_buf_putc(out, *word);
	}
	pr_buf_putc(out, '\'');
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
