/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The findings of the doctor.
 *
 * 1. The checks run in a thread of their own, because a sink that does not answer makes them take
 *    seconds. The doctor limits their time.
 * 2. Findings are cached for CACHE_US, so that requests cannot load the database.
 */
#include "admin/server.h"

#include "base/time.h"

#define CACHE_US ((int64_t)30 * 1000000)
#define ITEMS_MAX ((size_t)4 * 1024 * 1024)

static void put_finding(void *context, const struct pr_finding *finding)
{
	struct pr_buf *out = context;

	pr_put_comma(out);
	pr_buf_putc(out, '{');
	pr_put_text(out, "check", finding->check);
	pr_put_text(out, "level", pr_level_names[finding->level]);
	pr_put_text(out, "title", finding->title);
	pr_put_text(out, "detail", finding->detail);
	pr_put_text(out, "advice", finding->advice);
	pr_put_text(out, "command", finding->command);
	pr_buf_putc(out, '}');
}

/* Runs the checks unless the cache is fresh. False: the answer has the error. */
static bool examine(struct pr_admin_request *request)
{
	struct pr_admin_doctor *doctor = &request->admin->doctor;

	if (doctor->read_us && pr_mono_us() - doctor->read_us < CACHE_US)
		return true;
	doctor->read_us = 0;
	if (!doctor->run)
		return pr_request_refuse(request, 503, "unavailable",
					 "this server has no doctor; run postroom doctor");
	pr_buf_release(&doctor->items);
	doctor->items = (struct pr_buf){ .max = ITEMS_MAX };
	doctor->run(doctor->context, &doctor->queue.stop, put_finding, &doctor->items);
	if (pr_stop_requested(&doctor->queue.stop))
		return pr_request_refuse(request, 503, "stopping", "the server is stopping");
	if (doctor->items.failed)
		return pr_request_refuse(
			request, 503, "no_memory",
			"the findings do not fit into memory; run postroom doctor");
	doctor->at_us = pr_now_us();
	doctor->read_us = pr_mono_us();
	return true;
}

void pr_api_doctor(struct pr_admin_request *request)
{
	const struct pr_admin_doctor *doctor = &request->admin->doctor;
	struct pr_buf *out = &request->answer.text;

	if (!examine(request))
		return;
	pr_buf_puts(out, "{\"items\":[");
	pr_buf_puts(out, pr_buf_text(&doctor->items));
	pr_buf_putc(out, ']');
	pr_put_time(out, "checked_at", doctor->at_us);
	pr_buf_puts(out, "}\n");
	pr_request_succeed(request);
}

/* Without the time to settle that a relay has: every wait ends at once. */
void pr_doctor_end(struct pr_admin_doctor *doctor)
{
	pr_queue_end(&doctor->queue, -PR_STOP_LAST_US / 1000);
}

void pr_doctor_release(struct pr_admin_doctor *doctor)
{
	pr_queue_release(&doctor->queue);
	pr_buf_release(&doctor->items);
}
