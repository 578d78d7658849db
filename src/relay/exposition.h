/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text: Prometheus 0.0.4, or OpenMetrics 1.0. Nothing depends on the locale. */
#ifndef PR_RELAY_EXPOSITION_H
#define PR_RELAY_EXPOSITION_H

#include "base/buf.h"
#include "relay/families.h"
#include "relay/histogram.h"

struct pr_family {
	const char *name; /* a counter's without _total */
	enum pr_family_type type;
	const char *labels; /* their names, for the documentation */
	const char *help;
};
extern const struct pr_family pr_families[PR_FAMILY_COUNT];

struct pr_label {
	const char *name; /* NULL ends a list of labels */
	const char *value;
};
#define PR_LABELS(...) ((const struct pr_label[]){ __VA_ARGS__, { NULL, NULL } })
#define PR_NO_LABELS ((const struct pr_label[]){ { NULL, NULL } })

struct pr_exposition {
	struct pr_buf *out;
	bool openmetrics;
	const struct pr_family *family; /* whose samples come now */
};

/* Writes the head of a family. Its samples follow, and no other family's in between. */
void pr_expose_family(struct pr_exposition *exposition, enum pr_family_id id);
void pr_expose(struct pr_exposition *exposition, int64_t value, const struct pr_label *labels);
/* Microseconds, written as seconds. */
void pr_expose_time(struct pr_exposition *exposition, int64_t us, const struct pr_label *labels);
void pr_expose_histogram(struct pr_exposition *exposition, const struct pr_histogram *histogram,
			 const struct pr_buckets *buckets, const struct pr_label *labels);
void pr_expose_end(struct pr_exposition *exposition);

#endif
