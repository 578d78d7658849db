/* SPDX-License-Identifier: Apache-2.0 */
/* Probes each sink of a configuration. Nothing is published. */
#include "doctor/doctor.h"

#include "base/time.h"
#include "base/url.h"
#include "core/verdict.h"
#include "sink/sink.h"

#include <stdio.h>
#include <string.h>

#define PROBE_MS 5000

static void probe(const struct pr_relay_sink *sink, struct pr_checkup *checkup)
{
	static const struct pr_policy policy = { .max_error_length = 2000 };
	struct pr_arena arena = { 0 };
	struct pr_log log;
	struct pr_flight flight = {
		.arena = &arena,
		.policy = &policy,
		.timeout_ms = PROBE_MS,
		.stop = checkup->stop,
		.log = &log,
		.began_us = pr_mono_us(),
	};
	char shown[400], subject[600], title[620], id[100];

	flight.begin_until_us = flight.began_us + PROBE_MS * 1000;
	/* A library's messages go into the finding, not to the log. */
	pr_log_init(&log, -1, PR_LOG_OFF, PR_LOG_TEXT);
	pr_url_redact(sink->url, shown, sizeof(shown));
	snprintf(id, sizeof(id), "sink:%s", sink->name ? sink->name : "to");
	snprintf(subject, sizeof(subject), "Sink \"%s\" (%s)", sink->name ? sink->name : "to",
		 shown);
	snprintf(title, sizeof(title), "%s is reachable", subject);
	if (pr_check_begin(checkup, id, title)) {
		checkup->subject = subject;
		pr_sink_probe(sink->url, sink->settings, sink->setting_count, &flight, checkup);
		pr_check_end(checkup);
	}
	pr_log_release(&log);
	pr_arena_release(&arena);
}

void pr_doctor_check_sinks(const struct pr_relay_config *relay, struct pr_checkup *checkup)
{
	const struct pr_relay_sink to = { .url = relay->to };

	if (relay->to)
		probe(&to, checkup);
	for (size_t i = 0; !relay->to && i < relay->sink_count; i++)
		probe(&relay->sinks[i], checkup);
}
