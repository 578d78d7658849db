/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/text.h"
#include "base/time.h"

#include <string.h>
#include <unistd.h>

struct purge_options {
	const char *status;
	int64_t older_than_ms;
	struct cli_filter filter;
	bool yes;
};

static const struct pr_param params[] = {
	{ .name = "status",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct purge_options, status),
	  .value = "STATUS",
	  .help = "delivered or dead; has to be given" },
	{ .name = "older-than",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct purge_options, older_than_ms),
	  .value = "DUR",
	  .max = CLI_AGE_MAX_MS,
	  .help = "only what has been delivered or dead for longer than this" },
	CLI_FILTER_PARAMS(struct purge_options, filter),
	{ .name = "yes",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct purge_options, yes),
	  .help = "do not ask, not even on a terminal" },
	{ 0 },
};

/* How many there are at most: the figures know no tenants, keys and ages. */
struct tally {
	const postroom_filter *filter;
	int64_t count;
};

static void add_topic(void *context, const char *ns, const char *topic,
		      const postroom_counts *counts)
{
	struct tally *tally = context;
	const postroom_filter *filter = tally->filter;

	if ((filter->ns && strcmp(filter->ns, ns) != 0) ||
	    (filter->topic && !pr_pattern_match(filter->topic, topic)))
		return;
	tally->count += strcmp(filter->status, "dead") == 0 ? counts->dead : counts->delivered;
}

static void put_question(struct pr_buf *out, const postroom_filter *filter, int64_t count)
{
	char age[PR_DURATION_SIZE];
	bool exact = !filter->tenant_id && !filter->key && filter->older_than_ms == 0;

	pr_buf_puts(out, exact ? "Delete " : "Delete up to ");
	cli_put_count(out, count);
	pr_buf_printf(out, " %s message%s", filter->status, count == 1 ? "" : "s");
	if (filter->older_than_ms > 0) {
		pr_duration_format(filter->older_than_ms, age);
		pr_buf_printf(out, " older than %s", age);
	}
	pr_buf_puts(out, " for good?");
}

static bool ask(const postroom_filter *filter, int64_t count)
{
	PR_CLEANUP_BUF struct pr_buf question = { 0 };

	put_question(&question, filter, count);
	return !question.failed && cli_confirm(question.data);
}

static int purge(struct cli *cli, struct postroom_store *store, postroom_filter *filter,
		 int64_t expected)
{
	struct cli_steps steps;
	int64_t some = 0;
	int status;

	cli_steps_begin(&steps, cli, "purge", expected, &filter->older_than_ms);
	do
		status = postroom_purge_some(store, filter, CLI_STEP, &some);
	while (cli_steps_go_on(&steps, status, some));
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "purged", steps.total);
		cli_end_object(cli);
	} else {
		cli_put_messages(cli, steps.total, filter->status);
		pr_buf_puts(&cli->out, " deleted\n");
	}
	if (status < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	return CLI_DONE;
}

static int ask_and_purge(struct cli *cli, struct postroom_store *store,
			 postroom_filter *filter, bool asking)
{
	struct tally tally = { .filter = filter };
	postroom_counts counts;

	if ((asking || cli->err_terminal) && postroom_stats(store, &counts, add_topic, &tally) < 0)
		return cli_fail(cli, "%s", postroom_store_errmsg(store));
	if (asking && !ask(filter, tally.count))
		return cli_fail(cli, "purge: nothing was deleted");
	return purge(cli, store, filter, tally.count);
}

static int run(struct cli *cli, void *options)
{
	struct purge_options *given = options;
	postroom_filter filter = { .size = sizeof(filter),
				   .older_than_ms = given->older_than_ms,
				   .status = given->status };
	struct postroom_store *store = NULL;
	int status = cli_filter_read(cli, &given->filter, &filter);

	if (status != CLI_DONE)
		return status;
	if (!given->status)
		return cli_usage(cli,
				 "purge: say what to delete: --status delivered or --status dead");
	if (strcmp(given->status, "delivered") != 0 && strcmp(given->status, "dead") != 0)
		return cli_usage(cli,
				 "--status takes delivered or dead, not \"%s\"; "
				 "unfinished messages are never deleted",
				 given->status);
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	status = ask_and_purge(cli, store, &filter, !given->yes && isatty(STDIN_FILENO));
	postroom_store_close(store);
	return status;
}

const struct cli_command cmd_purge = {
	.name = "purge",
	.synopsis = "--status delivered|dead [--older-than DUR] [FILTERS]",
	.summary = "Delete delivered or dead messages for good",
	.about = "Deletes in small transactions, so that producers and relays go on "
		 "meanwhile. Asks first on a terminal. The dedupe keys of what is deleted "
		 "stay known for the --dedupe-retention of the relay. Messages that a dead one "
		 "holds back (relay --on-dead block) go on when it is deleted.",
	.examples = "postroom purge --status delivered --older-than 7d\n"
		    "postroom purge --status dead --topic 'trial.*' --yes",
	.params = params,
	.options_size = sizeof(struct purge_options),
	.run = run,
};
