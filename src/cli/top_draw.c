/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The display of `postroom top`.
 *
 * 1. The output never exceeds the width and height of the screen: a terminal that wraps or
 *    scrolls would destroy the layout.
 * 2. Control characters in texts of messages and receivers are escaped.
 */
#include "base/text.h"
#include "base/time.h"
#include "cli/top.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct screen {
	struct cli *cli;
	size_t rows, columns;
	size_t row; /* lines that are complete */
	struct pr_buf line;
};

/* Number of bytes that fit into the given columns; each character counts as one column. */
static size_t fit(const char *text, size_t len, size_t columns)
{
	size_t at = 0;

	for (size_t used = 0; at < len && used < columns; used++) {
		size_t character = pr_utf8_length(text + at, len - at);

		at += character ? character : 1;
	}
	return at;
}

static void end_line(struct screen *screen, enum cli_colour colour)
{
	const char *text = pr_buf_text(&screen->line);

	if (screen->row < screen->rows) {
		if (screen->row > 0)
			pr_buf_putc(&screen->cli->out, '\n');
		cli_put_coloured(screen->cli, colour, text,
				 fit(text, screen->line.len, screen->columns));
		pr_buf_puts(&screen->cli->out, "\033[K");
		screen->row++;
	}
	pr_buf_reset(&screen->line);
}

static void put_screen_line(struct screen *screen, enum cli_colour colour, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void put_screen_line(struct screen *screen, enum cli_colour colour, const char *format, ...)
{
	char text[1000];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	cli_put_text(&screen->line, text);
	end_line(screen, colour);
}

static const char *format_age(double age, char out[PR_DURATION_SIZE])
{
	return cli_format_age(age < 0 ? -1 : (int64_t)(age * 1e6), out);
}

static const char *format_latency(double seconds, char out[PR_DURATION_SIZE])
{
	if (seconds < 0)
		return "-";
	snprintf(out, PR_DURATION_SIZE, seconds < 1 ? "%.0fms" : "%.1fs",
		 seconds < 1 ? seconds * 1000 : seconds);
	return out;
}

static void draw_head(struct screen *screen, const struct top_view *view)
{
	enum cli_colour colour = CLI_BOLD;
	char now[PR_RFC3339_SIZE];

	pr_rfc3339(pr_now_us(), now);
	if (strcmp(view->status, "degraded") == 0)
		colour = CLI_YELLOW;
	else if (strcmp(view->status, "unhealthy") == 0)
		colour = CLI_RED;
	put_screen_line(screen, colour, "postroom %s  %.8s  %s%s",
			view->status[0] ? view->status : "top", now + 11, view->source,
			"   q quits");
	if (view->note[0])
		put_screen_line(screen, CLI_YELLOW, "%s", view->note);
}

static const char *capped_mark(const struct top_view *view, int64_t count)
{
	return view->capped && count >= PR_GAUGES_CAP ? "+" : "";
}

static void draw_figures(struct screen *screen, const struct top_view *view)
{
	char age[PR_DURATION_SIZE], p50[PR_DURATION_SIZE], p99[PR_DURATION_SIZE];
	bool late = view->oldest_age > 60;

	if (view->live) {
		put_screen_line(
			screen, CLI_PLAIN,
			"delivered/s  %.1f (1m)  %.1f (5m)  %.1f (15m)   latency p50 %s p99 %s",
			view->rates[0].delivered, view->rates[1].delivered,
			view->rates[2].delivered, format_latency(view->p50, p50),
			format_latency(view->p99, p99));
		put_screen_line(
			screen, view->rates[0].failure_ratio > 0.05 ? CLI_RED : CLI_PLAIN,
			"failed/s     %.1f (1m)  %.1f (5m)  %.1f (15m)   %.1f%% of all attempts",
			view->rates[0].failed, view->rates[1].failed, view->rates[2].failed,
			view->rates[0].failure_ratio * 100);
	}
	put_screen_line(screen, late ? CLI_RED : CLI_PLAIN,
			"backlog      %" PRId64 "%s   oldest %s   retrying %" PRId64
			"   scheduled %" PRId64,
			view->pending + view->processing,
			capped_mark(view, view->pending + view->processing),
			format_age(view->oldest_age, age), view->failed, view->scheduled);
	put_screen_line(screen, view->dead > 0 ? CLI_RED : CLI_PLAIN,
			"dead         %" PRId64 "%s%s", view->dead, capped_mark(view, view->dead),
			view->dead > 0 ? "   postroom list --status dead" : "");
}

static void draw_sinks(struct screen *screen, const struct top_view *view)
{
	if (view->sink_count == 0)
		return;
	put_screen_line(screen, CLI_PLAIN, "%s", "");
	put_screen_line(screen, CLI_BOLD, "%-20s %-9s %9s %11s %9s  %s", "SINK", "BREAKER",
			"IN FLIGHT", "DELIVERED", "FAILED", "LAST ERROR");
	for (size_t i = 0; i < view->sink_count; i++) {
		const struct top_sink *sink = &view->sinks[i];

		put_screen_line(screen, strcmp(sink->breaker, "closed") == 0 ? CLI_PLAIN : CLI_RED,
				"%-20.20s %-9s %9" PRId64 " %11" PRId64 " %9" PRId64 "  %s",
				sink->name, sink->breaker, sink->in_flight, sink->delivered,
				sink->failed, sink->error);
	}
}

static void draw_topics(struct screen *screen, const struct top_view *view, size_t most)
{
	char age[PR_DURATION_SIZE];

	if (view->topic_count == 0)
		return;
	put_screen_line(screen, CLI_PLAIN, "%s", "");
	put_screen_line(screen, CLI_BOLD, "%-30s %9s %9s %9s %9s  %s",
			view->topics_capped ? "TOPIC (of a sample)" : "TOPIC", "PENDING",
			"RETRYING", "IN FLIGHT", "DEAD", "OLDEST");
	for (size_t i = 0; i < view->topic_count && i < most; i++) {
		const struct top_topic *topic = &view->topics[i];

		put_screen_line(screen, CLI_PLAIN,
				"%-30.30s %9" PRId64 " %9" PRId64 " %9" PRId64 " %9" PRId64 "  %s",
				topic->name, topic->pending, topic->failed, topic->processing,
				topic->dead, format_age(topic->oldest_age, age));
	}
}

static void draw_errors(struct screen *screen, const struct top_view *view)
{
	if (view->error_count == 0)
		return;
	put_screen_line(screen, CLI_PLAIN, "%s", "");
	put_screen_line(screen, CLI_BOLD, "%9s  %-20s %s", "DEAD", "TOPIC", "ERROR");
	for (size_t i = 0; i < view->error_count; i++)
		put_screen_line(screen, CLI_PLAIN, "%9" PRId64 "  %-20.20s %s",
				view->errors[i].count, view->errors[i].topic, view->errors[i].text);
}

void top_draw(struct cli *cli, const struct top_view *view, size_t rows, size_t columns)
{
	struct screen screen = { .cli = cli, .rows = rows, .columns = columns };
	size_t errors = view->error_count > 0 ? view->error_count + 2 : 0, left;

	pr_buf_puts(&cli->out, "\033[H");
	draw_head(&screen, view);
	draw_figures(&screen, view);
	draw_sinks(&screen, view);
	/* Topics leave rows for the section below them if enough rows remain. */
	left = rows > screen.row + errors + 2 ? rows - screen.row - errors - 2 : 0;
	draw_topics(&screen, view, left > 3 ? left : 3);
	draw_errors(&screen, view);
	pr_buf_puts(&cli->out, "\033[J");
	pr_buf_release(&screen.line);
}

void top_print(struct cli *cli, const struct top_view *view)
{
	struct pr_buf *out = &cli->out;
	size_t open = 0;

	for (size_t i = 0; i < view->sink_count; i++)
		open += strcmp(view->sinks[i].breaker, "closed") != 0;
	pr_buf_printf(out, "pending=%" PRId64 " processing=%" PRId64 " failed_pending=%" PRId64,
		      view->pending, view->processing, view->failed);
	pr_buf_printf(out, " scheduled=%" PRId64 " dead=%" PRId64 " backlog=%" PRId64 " capped=%d",
		      view->scheduled, view->dead, view->pending + view->processing, view->capped);
	pr_buf_puts(out, " oldest_age_seconds=");
	if (view->oldest_age >= 0)
		pr_buf_printf(out, "%.3f", view->oldest_age);
	if (view->live)
		pr_buf_printf(out,
			      " status=%s delivered_per_second=%.3f failed_per_second=%.3f "
			      "open_breakers=%zu",
			      view->status, view->rates[0].delivered, view->rates[0].failed, open);
	pr_buf_putc(out, '\n');
}

static void put_real(struct pr_buf *out, const char *name, double value)
{
	char text[40];
	int len = snprintf(text, sizeof(text), "%.3f", value);

	if (value < 0)
		cli_put_member(out, name, NULL);
	else
		cli_put_json_member(out, name, text, (size_t)len);
}

void top_print_json(struct cli *cli, const struct top_view *view)
{
	struct pr_buf *out = &cli->out;

	cli_begin_object(cli);
	cli_put_member(out, "source", view->source);
	cli_put_member(out, "status", view->status[0] ? view->status : NULL);
	cli_put_int_member(out, "pending", view->pending);
	cli_put_int_member(out, "processing", view->processing);
	cli_put_int_member(out, "failed_pending", view->failed);
	cli_put_int_member(out, "scheduled", view->scheduled);
	cli_put_int_member(out, "dead", view->dead);
	cli_put_int_member(out, "backlog", view->pending + view->processing);
	cli_put_json_member(out, "capped", view->capped ? "true" : "false", view->capped ? 4 : 5);
	put_real(out, "oldest_age_seconds", view->oldest_age);
	put_real(out, "delivered_per_second", view->live ? view->rates[0].delivered : -1);
	put_real(out, "failed_per_second", view->live ? view->rates[0].failed : -1);
	cli_end_object(cli);
}
