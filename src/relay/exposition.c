/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Label values are data of strangers: quotes, backslashes and newlines are escaped, and
 *    ill-formed UTF-8 becomes U+FFFD, so that no value can end its line or spoil a scrape.
 * 2. Numbers are integers or fixed point: printf() of a double depends on the locale.
 */
#include "relay/exposition.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PR_FAMILY_ROW(id, type, name, labels, help)                                                \
	[PR_FAMILY_##id] = { name, PR_##type, labels, help },
const struct pr_family pr_families[PR_FAMILY_COUNT] = { PR_FAMILIES(PR_FAMILY_ROW) };
#undef PR_FAMILY_ROW

static const char *const type_names[] = {
	[PR_COUNTER] = "counter",
	[PR_GAUGE] = "gauge",
	[PR_HISTOGRAM] = "histogram",
};

/* In the Prometheus format the header also has the suffix of a counter. */
static const char *head_suffix(const struct pr_exposition *exposition)
{
	return exposition->family->type == PR_COUNTER && !exposition->openmetrics ? "_total" : "";
}

void pr_expose_family(struct pr_exposition *exposition, enum pr_family_id id)
{
	const struct pr_family *family = exposition->family = &pr_families[id];

	pr_buf_printf(exposition->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", family->name,
		      head_suffix(exposition), family->help, family->name, head_suffix(exposition),
		      type_names[family->type]);
}

static void put_value(struct pr_buf *out, const char *value)
{
	size_t len = strlen(value);

	while (len > 0) {
		size_t character = pr_utf8_length(value, len);

		if (character == 0)
			pr_buf_puts(out, "\xef\xbf\xbd");
		else if (*value == '\n')
			pr_buf_puts(out, "\\n");
		else if (*value == '"' || *value == '\\')
			pr_buf_printf(out, "\\%c", *value);
		else
			pr_buf_append(out, value, character);
		value += character ? character : 1;
		len -= character ? character : 1;
	}
}

static void put_label(struct pr_buf *out, const char *name, const char *value, bool *first)
{
	pr_buf_printf(out, "%c%s=\"", *first ? '{' : ',', name);
	put_value(out, value);
	pr_buf_putc(out, '"');
	*first = false;
}

/* The name with its labels; le, if any, comes last. */
static void put_series(struct pr_exposition *exposition, const char *suffix,
		       const struct pr_label *labels, const char *le)
{
	struct pr_buf *out = exposition->out;
	bool first = true;

	pr_buf_puts(out, exposition->family->name);
	pr_buf_puts(out, suffix);
	for (; labels->name; labels++)
		put_label(out, labels->name, labels->value, &first);
	if (le)
		put_label(out, "le", le, &first);
	pr_buf_puts(out, first ? " " : "} ");
}

static void put_number(struct pr_buf *out, int64_t value, bool micro)
{
	const char *sign = value < 0 ? "-" : "";
	uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;

	if (micro)
		pr_buf_printf(out, "%s%" PRIu64 ".%06" PRIu64 "\n", sign, size / 1000000,
			      size % 1000000);
	else
		pr_buf_printf(out, "%s%" PRIu64 "\n", sign, size);
}

static const char *sample_suffix(const struct pr_exposition *exposition)
{
	return exposition->family->type == PR_COUNTER ? "_total" : "";
}

void pr_expose(struct pr_exposition *exposition, int64_t value, const struct pr_label *labels)
{
	put_series(exposition, sample_suffix(exposition), labels, NULL);
	put_number(exposition->out, value, false);
}

void pr_expose_time(struct pr_exposition *exposition, int64_t us, const struct pr_label *labels)
{
	put_series(exposition, sample_suffix(exposition), labels, NULL);
	put_number(exposition->out, us, true);
}

static void put_bucket(struct pr_exposition *exposition, const struct pr_label *labels,
		       const char *bound, int64_t count)
{
	char le[24];

	/* OpenMetrics requires bounds to be floats. */
	snprintf(le, sizeof(le), "%s%s", bound,
		 exposition->openmetrics && !strpbrk(bound, ".I") ? ".0" : "");
	put_series(exposition, "_bucket", labels, le);
	put_number(exposition->out, count, false);
}

void pr_expose_histogram(struct pr_exposition *exposition, const struct pr_histogram *histogram,
			 const struct pr_buckets *buckets, const struct pr_label *labels)
{
	struct pr_tally tally;
	int64_t below = 0;

	pr_histogram_read(histogram, &tally);
	for (size_t i = 0; i < buckets->count; i++) {
		below += tally.counts[i];
		put_bucket(exposition, labels, buckets->labels[i], below);
	}
	put_bucket(exposition, labels, "+Inf", tally.total);
	put_series(exposition, "_sum", labels, NULL);
	put_number(exposition->out, tally.sum, buckets->micro);
	put_series(exposition, "_count", labels, NULL);
	put_number(exposition->out, tally.total, false);
}

void pr_expose_end(struct pr_exposition *exposition)
{
	if (exposition->openmetrics)
		pr_buf_puts(exposition->out, "# EOF\n");
}
