/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/text.h"
#include "relay/exposition.h"
#include "relay/meter.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static struct pr_buf out;

static const char *written(void)
{
	return pr_buf_text(&out);
}

static struct pr_exposition exposition(bool openmetrics)
{
	pr_buf_reset(&out);
	return (struct pr_exposition){ .out = &out, .openmetrics = openmetrics };
}

TEST(M1_counter_has_its_suffix_where_each_format_wants_it)
{
	struct pr_exposition to = exposition(false);

	pr_expose_family(&to, PR_FAMILY_LOST);
	pr_expose(&to, 7, PR_NO_LABELS);
	pr_expose_end(&to);
	CHECK(strstr(written(), "# TYPE postroom_leases_lost_total counter\n"
				"postroom_leases_lost_total 7\n"));
	CHECK(!strstr(written(), "# EOF"));
	to = exposition(true);
	pr_expose_family(&to, PR_FAMILY_LOST);
	pr_expose(&to, 7, PR_NO_LABELS);
	pr_expose_end(&to);
	CHECK(strstr(written(), "# TYPE postroom_leases_lost counter\n"
				"postroom_leases_lost_total 7\n# EOF\n"));
	pr_buf_release(&out);
}

TEST(M1_label_value_cannot_leave_its_quotes)
{
	struct pr_exposition to = exposition(false);

	pr_expose_family(&to, PR_FAMILY_CLAIMED);
	pr_buf_reset(&out);
	pr_expose(&to, 1,
		  PR_LABELS({ "topic", "a\"} 9\nb\\" }, { "sink", "\xc3\xa4\xff\xe2\x82" }));
	CHECK_STR(written(), "postroom_messages_claimed_total{topic=\"a\\\"} 9\\nb\\\\\","
			     "sink=\"\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"} 1\n");
	CHECK(pr_utf8_valid(written(), out.len));
	pr_buf_release(&out);
}

TEST(M1_time_is_written_in_seconds_with_all_its_digits)
{
	struct pr_exposition to = exposition(false);

	pr_expose_family(&to, PR_FAMILY_OLDEST);
	pr_buf_reset(&out);
	pr_expose_time(&to, 1763438400000042, PR_NO_LABELS);
	pr_expose_time(&to, -1500000, PR_NO_LABELS);
	CHECK_STR(written(), "postroom_outbox_oldest_age_seconds 1763438400.000042\n"
			     "postroom_outbox_oldest_age_seconds -1.500000\n");
	pr_buf_release(&out);
}

TEST(M1_histogram_buckets_are_cumulative_and_include_their_bound)
{
	struct pr_exposition to = exposition(false);
	struct pr_histogram histogram = { 0 };
	struct pr_tally tally = { 0 };

	pr_tally_add(&tally, &pr_buckets_operation, 0);
	pr_tally_add(&tally, &pr_buckets_operation, 1000);
	pr_tally_add(&tally, &pr_buckets_operation, 1001);
	pr_histogram_add(&histogram, &tally);
	pr_histogram_observe(&histogram, &pr_buckets_operation, 99000000);
	pr_expose_family(&to, PR_FAMILY_HANDLER);
	pr_expose_histogram(&to, &histogram, &pr_buckets_operation, PR_LABELS({ "handler", "h" }));
	CHECK(strstr(written(), "_bucket{handler=\"h\",le=\"0.001\"} 2\n"));
	CHECK(strstr(written(), "_bucket{handler=\"h\",le=\"0.0025\"} 3\n"));
	CHECK(strstr(written(), "_bucket{handler=\"h\",le=\"1\"} 3\n"));
	CHECK(strstr(written(), "_bucket{handler=\"h\",le=\"30\"} 3\n"));
	CHECK(strstr(written(), "_bucket{handler=\"h\",le=\"+Inf\"} 4\n"
				"postroom_handler_duration_seconds_sum{handler=\"h\"} 99.002001\n"
				"postroom_handler_duration_seconds_count{handler=\"h\"} 4\n"));
	to = exposition(true);
	pr_expose_family(&to, PR_FAMILY_HANDLER);
	pr_expose_histogram(&to, &histogram, &pr_buckets_operation, PR_LABELS({ "handler", "h" }));
	CHECK(strstr(written(), "le=\"1.0\"} 3\n"));
	CHECK(strstr(written(), "le=\"+Inf\"} 4\n"));
	pr_buf_release(&out);
}

static void check_bounds(const struct pr_buckets *buckets)
{
	CHECK(buckets->count < PR_BUCKETS_MAX);
	for (size_t i = 0; i < buckets->count; i++) {
		double bound = (double)buckets->bounds[i] / (buckets->micro ? 1e6 : 1);

		CHECK(i == 0 || buckets->bounds[i] > buckets->bounds[i - 1]);
		CHECK(fabs(strtod(buckets->labels[i], NULL) - bound) < 1e-9);
	}
}

TEST(M1_bounds_of_buckets_and_their_labels_are_the_same)
{
	check_bounds(&pr_buckets_operation);
	check_bounds(&pr_buckets_latency);
	check_bounds(&pr_buckets_batch);
}

TEST(M1_quantile_is_between_the_bounds_of_its_bucket)
{
	struct pr_tally tally = { 0 };

	CHECK(pr_tally_quantile(&tally, &pr_buckets_latency, 0.5) < 0);
	for (int i = 0; i < 98; i++)
		pr_tally_add(&tally, &pr_buckets_latency, 3000);
	pr_tally_add(&tally, &pr_buckets_latency, 2000000);
	pr_tally_add(&tally, &pr_buckets_latency, INT64_C(7200000000));
	CHECK(pr_tally_quantile(&tally, &pr_buckets_latency, 0.5) <= 5000);
	CHECK(pr_tally_quantile(&tally, &pr_buckets_latency, 0.99) > 1000000);
	CHECK(pr_tally_quantile(&tally, &pr_buckets_latency, 0.99) <= 2500000);
	CHECK_INT((int64_t)pr_tally_quantile(&tally, &pr_buckets_latency, 1), INT64_C(3600000000));
}

TEST(M1_families_have_unique_names_and_a_help_text)
{
	for (size_t i = 0; i < PR_FAMILY_COUNT; i++) {
		size_t len = strlen(pr_families[i].name);

		CHECK(*pr_families[i].help);
		CHECK(!strstr(pr_families[i].name, "_total"));
		CHECK_INT(strspn(pr_families[i].name, "abcdefghijklmnopqrstuvwxyz_"), len);
		for (size_t j = 0; j < i; j++)
			CHECK_MSG(strcmp(pr_families[i].name, pr_families[j].name) != 0, "%s",
				  pr_families[i].name);
	}
}

static struct pr_metrics metrics;

TEST(M1_topics_beyond_the_limit_share_a_label)
{
	char topic[300];

	pr_meter_init(&metrics);
	CHECK_INT(pr_meter_topic(&metrics, "other"), 0);
	for (int i = 0; i < PR_TOPICS_MAX; i++) {
		snprintf(topic, sizeof(topic), "orders.%d", i);
		CHECK_INT(pr_meter_topic(&metrics, topic), (size_t)i + 1);
	}
	CHECK_INT(pr_meter_topic(&metrics, "late"), 0);
	CHECK_INT(pr_meter_topic(&metrics, "orders.0"), 1);
	CHECK_INT(pr_meter_topic(&metrics, "orders.99"), 100);
	CHECK_INT(metrics.topic_count, PR_TOPICS_MAX + 1);
	pr_meter_release(&metrics);
}

TEST(M1_topics_with_the_same_sanitized_name_share_a_label)
{
	char longest[400];

	pr_meter_init(&metrics);
	CHECK_INT(pr_meter_topic(&metrics, "\xff"), 1);
	CHECK_INT(pr_meter_topic(&metrics, "\xfe"), 1);
	CHECK_INT(pr_meter_topic(&metrics, "\xef\xbf\xbd"), 1);
	CHECK_STR(metrics.topics[1].name, "\xef\xbf\xbd");
	memset(longest, 'x', sizeof(longest));
	longest[399] = '\0';
	CHECK_INT(pr_meter_topic(&metrics, longest), 2);
	longest[398] = '\0';
	CHECK_INT(pr_meter_topic(&metrics, longest), 2);
	CHECK_INT(strlen(metrics.topics[2].name), POSTROOM_TOPIC_MAX);
	pr_meter_release(&metrics);
}

static void *look_up(void *unused)
{
	char topic[32];

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 120; i++) {
			size_t at;

			snprintf(topic, sizeof(topic), "t%d", i);
			at = pr_meter_topic(&metrics, topic);
			pr_count(&metrics.topics[at].claimed, 1);
			if (at > 0)
				CHECK_STR(metrics.topics[at].name, topic);
		}
	}
	return unused;
}

TEST(M1_concurrent_first_uses_of_a_topic_create_one_label)
{
	pthread_t threads[4];
	int64_t total = 0;

	pr_meter_init(&metrics);
	for (int i = 0; i < 4; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, look_up, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	CHECK_INT(metrics.topic_count, PR_TOPICS_MAX + 1);
	for (size_t i = 0; i <= PR_TOPICS_MAX; i++)
		total += metrics.topics[i].claimed;
	CHECK_INT(total, 4 * 200 * 120);
	CHECK_INT(metrics.topics[0].claimed, 4 * 200 * 20);
	pr_meter_release(&metrics);
}

TEST(M1_store_failures_are_counted_by_their_kind)
{
	struct pr_err err = { 0 };

	pr_meter_init(&metrics);
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_OK, &err);
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_STOPPED, &err);
	pr_meter_store(&metrics, PR_OPERATION_SETTLE, 0, POSTROOM_LEASE_LOST, &err);
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_UNAVAILABLE, &err);
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_BUSY, &err);
	strcpy(err.sqlstate, "40001");
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_DATABASE, &err);
	strcpy(err.sqlstate, "57014");
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_DATABASE, &err);
	strcpy(err.sqlstate, "53100");
	pr_meter_store(&metrics, PR_OPERATION_CLAIM, 0, POSTROOM_DATABASE, &err);
	CHECK_INT(metrics.store_errors[PR_OPERATION_CLAIM][PR_FAILURE_CONNECTION], 1);
	CHECK_INT(metrics.store_errors[PR_OPERATION_CLAIM][PR_FAILURE_CONFLICT], 2);
	CHECK_INT(metrics.store_errors[PR_OPERATION_CLAIM][PR_FAILURE_TIMEOUT], 1);
	CHECK_INT(metrics.store_errors[PR_OPERATION_CLAIM][PR_FAILURE_OTHER], 1);
	CHECK_INT(metrics.store_errors[PR_OPERATION_SETTLE][PR_FAILURE_OTHER], 0);
	pr_meter_release(&metrics);
}
