/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/text.h"
#include "core/finding.h"

#include <stdio.h>
#include <stdlib.h>

struct seen {
	size_t count;
	char *detail, *command;
};

static void keep(void *context, const struct pr_finding *finding)
{
	struct seen *seen = context;

	seen->count++;
	free(seen->detail);
	free(seen->command);
	seen->detail = finding->detail ? strdup(finding->detail) : NULL;
	seen->command = finding->command ? strdup(finding->command) : NULL;
}

static void release_seen(struct seen *seen)
{
	free(seen->detail);
	free(seen->command);
}

/* The shell passes on the word as one argument, unchanged. */
static void check_word(const char *word)
{
	struct seen seen = { 0 };
	struct pr_checkup checkup = { .fn = keep, .context = &seen };
	char read[600] = "";
	FILE *shell;

	pr_check_begin(&checkup, "test", "Test");
	pr_found(&checkup, PR_LEVEL_NOTE, "Note");
	pr_found_command(&checkup, "printf %%s ");
	pr_found_command_word(&checkup, word);
	pr_check_end(&checkup);
	CHECK(!strchr(seen.command, '\n'));
	setenv("COMMAND", seen.command, 1);
	shell = popen("bash -c \"$COMMAND\"", "r");
	CHECK(shell);
	read[fread(read, 1, sizeof(read) - 1, shell)] = '\0';
	CHECK_INT(pclose(shell), 0);
	CHECK_STR(read, word);
	pr_checkup_release(&checkup);
	release_seen(&seen);
}

TEST(U2_word_of_a_command_reaches_the_shell_unchanged)
{
	static const char *const words[] = {
		"orders",
		"orders.*",
		"a b",
		"it's",
		"'; touch /tmp/owned; '",
		"$(id)",
		"`id`",
		"\"x\" \\ !$HOME",
		"a\nb\t'c'\\\x7f",
		"#x",
		"~root",
		"{a,b}",
		"\xe2\x82\xac",
		"\n'$(id)",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		check_word(words[i]);
}

TEST(U2_long_command_is_whole)
{
	struct seen seen = { 0 };
	struct pr_checkup checkup = { .fn = keep, .context = &seen };
	char word[20001];

	memset(word, 'x', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	pr_check_begin(&checkup, "test", "Test");
	pr_found(&checkup, PR_LEVEL_NOTE, "Note");
	pr_found_detail(&checkup, "%s.", word);
	pr_found_command(&checkup, "DROP TABLE %s;", word);
	pr_check_end(&checkup);
	CHECK_INT(strlen(seen.detail), 20001);
	CHECK_INT(strlen(seen.command), 20000 + strlen("DROP TABLE ;"));
	pr_checkup_release(&checkup);
	release_seen(&seen);
}

TEST(U2_command_that_is_too_long_is_left_out_and_text_is_cut_between_characters)
{
	struct seen seen = { 0 };
	struct pr_checkup checkup = { .fn = keep, .context = &seen };
	struct pr_buf word = { 0 };

	for (int i = 0; i < 30000; i++)
		pr_buf_puts(&word, "\xe2\x82\xac");
	pr_check_begin(&checkup, "test", "Test");
	pr_found(&checkup, PR_LEVEL_NOTE, "Note");
	pr_found_detail(&checkup, "%s", pr_buf_text(&word));
	pr_found_command(&checkup, "DROP TABLE %s;", pr_buf_text(&word));
	pr_found(&checkup, PR_LEVEL_NOTE, "Note");
	CHECK(!seen.command);
	CHECK(strlen(seen.detail) > 64000 && strlen(seen.detail) <= 65536);
	CHECK(pr_utf8_valid(seen.detail, strlen(seen.detail)));
	pr_found_command(&checkup, "whole");
	pr_check_end(&checkup);
	CHECK_STR(seen.command, "whole");
	CHECK_INT(seen.count, 2);
	pr_checkup_release(&checkup);
	pr_buf_release(&word);
	release_seen(&seen);
}
