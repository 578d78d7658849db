/* SPDX-License-Identifier: Apache-2.0 */
/* `postroom top`: data model, data sources and display. */
#ifndef PR_CLI_TOP_H
#define PR_CLI_TOP_H

#include "cli/cli.h"

#define TOP_TOPICS 20
#define TOP_SINKS 20
#define TOP_ERRORS 10

struct top_topic {
	char name[200];
	int64_t pending, processing, failed, dead;
	double oldest_age; /* seconds; < 0: nothing is due */
};

struct top_sink {
	char name[100];
	char breaker[16];
	char error[200]; /* the last error; "" if there was none */
	int64_t in_flight, delivered, failed;
};

/* Dead letters of one cause. */
struct top_error {
	char topic[100];
	char text[200];
	int64_t count;
};

struct top_rate {
	double delivered, failed, failure_ratio; /* the first two per second */
};

struct top_view {
	char source[200];
	char note[300];		  /* why the preferred source is not used; "" if it is */
	char status[16];	  /* "" if unknown */
	bool live;		  /* rates and sinks are known */
	struct top_rate rates[3]; /* 1, 5 and 15 minutes */
	double p50, p99;	  /* of the last sample that has any; < 0: none */
	int64_t pending, processing, failed, scheduled, dead;
	bool capped;	    /* a count stopped at PR_GAUGES_CAP */
	bool topics_capped; /* the topics are of a sample of the messages */
	double oldest_age;
	struct top_topic topics[TOP_TOPICS]; /* the largest first */
	size_t topic_count;
	struct top_sink sinks[TOP_SINKS];
	size_t sink_count;
	struct top_error errors[TOP_ERRORS];
	size_t error_count;
};

/* top_api.c: false: the server does not respond; see err. */
bool top_read_api(const char *url, const char *token, struct top_view *view, struct pr_err *err);
/* top_store.c */
int top_read_store(struct postroom_store *store, struct top_view *view, struct pr_err *err);
/* Keeps the TOP_TOPICS largest topics, sorted. */
void top_add_topic(struct top_view *view, const struct top_topic *topic);

/* top_draw.c: one screen with the given rows and columns; the last row has no newline. */
void top_draw(struct cli *cli, const struct top_view *view, size_t rows, size_t columns);
/* One line of name=value. */
void top_print(struct cli *cli, const struct top_view *view);
void top_print_json(struct cli *cli, const struct top_view *view);

/*
 * fetch.c: GET over plain HTTP. POSTROOM_UNAVAILABLE: no response within timeout_ms, or a status
 * other than 200. token may be NULL.
 */
int cli_fetch(const char *url, const char *path, const char *token, int64_t timeout_ms,
	      struct pr_buf *body, struct pr_err *err);

#endif
