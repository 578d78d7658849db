/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line. Options may be before and after the command. The parser finds
 * the command first: an option before it may belong to any command, and only the
 * option table says whether the next word is its value.
 */
#include "cli/cli.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 96

const struct cli_command *cli_find_command(const char *name)
{
	for (size_t i = 0; cli_commands[i]; i++) {
		if (strcmp(cli_commands[i]->name, name) == 0)
			return cli_commands[i];
	}
	return NULL;
}

static const struct pr_param *find_letter(const struct pr_param *table, char letter)
{
	for (; table && table->name; table++) {
		if (table->letter == letter)
			return table;
	}
	return NULL;
}

/* Looks up "--name", "--name=value", "-x" or "-xvalue"; *ret_value is the attached value. */
static const struct pr_param *find_option(const struct pr_param *table, const char *word,
					  const char **ret_value)
{
	char name[64];

	*ret_value = NULL;
	if (!table)
		return NULL;
	if (word[1] != '-') {
		const struct pr_param *param = find_letter(table, word[1]);
		if (param && word[2])
			*ret_value = word + 2;
		return param;
	}
	size_t len = strcspn(word + 2, "=");
	if (len == 0 || len >= sizeof(name))
		return NULL;
	memcpy(name, word + 2, len);
	name[len] = '\0';
	if (word[2 + len] == '=')
		*ret_value = word + 2 + len + 1;
	return pr_param_find(table, name);
}

static bool takes_next_word(const char *word)
{
	const char *value;
	const struct pr_param *param = find_option(cli_global_params, word, &value);

	for (size_t i = 0; !param && cli_commands[i]; i++)
		param = find_option(cli_commands[i]->params, word, &value);
	return param && param->type != PR_PARAM_FLAG && !value;
}

/* The index of the command's name in argv, or argc if there is none. */
static int find_command_word(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0)
			return i + 1 < argc ? i + 1 : argc;
		if (argv[i][0] != '-' || !argv[i][1])
			return i;
		if (takes_next_word(argv[i]))
			i++;
	}
	return argc;
}

static size_t add_names(const struct pr_param *table, const char **names, size_t count)
{
	for (; table && table->name && count < NAMES_MAX - 1; table++)
		names[count++] = table->name;
	return count;
}

static int unknown_option(struct cli *cli, const char *word)
{
	const char *names[NAMES_MAX];
	char name[64] = "";
	size_t len = strcspn(word, "=");

	if (word[1] != '-')
		return cli_usage(
			cli, "unknown option %s; put -- before an argument that begins with a dash",
			word);
	if (len - 2 < sizeof(name))
		memcpy(name, word + 2, len - 2);
	size_t count = add_names(cli_global_params, names, 0);
	count = add_names(cli->command ? cli->command->params : NULL, names, count);
	names[count] = NULL;
	const char *nearest = pr_text_nearest(name, names);
	const char *command = cli->command ? cli->command->name : "";
	if (nearest)
		return cli_usage(cli, "unknown option %.*s; did you mean --%s?", (int)len, word,
				 nearest);
	return cli_usage(cli, "unknown option %.*s; postroom help%s%s lists all options", (int)len,
			 word, *command ? " " : "", command);
}

int cli_unknown_command(struct cli *cli, const char *word)
{
	const char *names[NAMES_MAX];
	size_t count = 0;

	for (; cli_commands[count] && count < NAMES_MAX - 1; count++)
		names[count] = cli_commands[count]->name;
	names[count] = NULL;
	const char *nearest = pr_text_nearest(word, names);
	if (nearest)
		return cli_usage(cli, "unknown command %s; did you mean %s?", word, nearest);
	return cli_usage(cli, "unknown command %s; postroom --help lists all commands", word);
}

/* One option at argv[*at], with its value; moves *at to the last word used. */
static int parse_option(struct cli *cli, void *options, int argc, char **argv, int *at)
{
	const char *value;
	void *target = &cli->global;
	const char *word = argv[*at];
	const struct pr_param *param = find_option(cli_global_params, word, &value);
	struct pr_err err;

	if (!param && cli->command) {
		param = find_option(cli->command->params, word, &value);
		target = options;
	}
	if (!param)
		return unknown_option(cli, word);
	if (param->type == PR_PARAM_FLAG) {
		if (value)
			return cli_usage(cli, "--%s takes no value", param->name);
		value = "true";
	} else if (!value) {
		if (*at + 1 >= argc)
			return cli_usage(cli, "--%s needs a value: %s", param->name,
					 param->value ? param->value : "VALUE");
		value = argv[++*at];
	}
	if (pr_param_set(param, target, value, &err) < 0)
		return cli_usage(cli, "--%s", err.text);
	if (target == options && param - cli->command->params < CLI_OPTIONS_MAX)
		cli->given[param - cli->command->params] = value;
	return CLI_DONE;
}

static int check_arg_count(struct cli *cli)
{
	const struct cli_command *command = cli->command;

	if (cli->global.help || cli->global.version)
		return CLI_DONE;
	if (cli->arg_count > command->max_args)
		return cli_usage(cli, "%s: one argument too many: %s; postroom help %s shows how",
				 command->name, cli->args[command->max_args], command->name);
	if (cli->arg_count < command->min_args) {
		size_t first = strcspn(command->synopsis, "\n");
		return cli_usage(cli, "%s: an argument is missing: postroom %s %.*s", command->name,
				 command->name, (int)first, command->synopsis);
	}
	return CLI_DONE;
}

static int parse_words(struct cli *cli, void *options, int argc, char **argv, int command_word)
{
	const char **args = (const char **)argv;
	bool only_args = false;

	for (int i = 1; i < argc; i++) {
		if (i == command_word)
			continue;
		if (!only_args && strcmp(argv[i], "--") == 0) {
			only_args = true;
		} else if (!only_args && argv[i][0] == '-' && argv[i][1]) {
			int status = parse_option(cli, options, argc, argv, &i);
			if (status != CLI_DONE)
				return status;
		} else {
			/* All words before this one have been processed, so their slots are free. */
			args[cli->arg_count++] = argv[i];
		}
	}
	cli->args = args;
	return cli->command ? check_arg_count(cli) : CLI_DONE;
}

int cli_parse(struct cli *cli, int argc, char **argv, void **ret_options)
{
	int command_word = find_command_word(argc, argv);

	pr_params_defaults(cli_global_params, &cli->global);
	if (command_word < argc) {
		cli->command = cli_find_command(argv[command_word]);
		if (!cli->command)
			return cli_unknown_command(cli, argv[command_word]);
	}
	if (cli->command && cli->command->options_size > 0) {
		*ret_options = calloc(1, cli->command->options_size);
		if (!*ret_options)
			return cli_fail(cli, "no memory");
		pr_params_defaults(cli->command->params, *ret_options);
	}
	return parse_words(cli, *ret_options, argc, argv, command_word);
}
