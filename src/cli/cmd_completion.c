/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for shells, generated from the tables of commands and options. */
#include "cli/cli.h"

#include "sink/sink.h"

#include <ctype.h>
#include <string.h>

static const char *const shells[] = { "bash", "zsh", "fish", NULL };

static bool takes_file(const struct pr_param *param)
{
	return param->value &&
	       (strcmp(param->value, "FILE") == 0 || strcmp(param->value, "PATH") == 0);
}

static void put_words(struct pr_buf *out, const char *const *words)
{
	for (size_t i = 0; words && words[i]; i++)
		pr_buf_printf(out, "%s%s", i > 0 ? " " : "", words[i]);
}

static void put_commands(struct pr_buf *out)
{
	for (size_t i = 0; cli_commands[i]; i++)
		pr_buf_printf(out, "%s%s", i > 0 ? " " : "", cli_commands[i]->name);
}

/* True if a form of the synopsis before this one begins with the same word. */
static bool is_repeated(const char *synopsis, const char *word, size_t len)
{
	for (const char *line = synopsis; line < word; line += strcspn(line, "\n") + 1) {
		if (strncmp(line, word, len) == 0 && !islower((unsigned char)line[len]))
			return true;
	}
	return false;
}

/* The literal words that a synopsis begins with: "list …\nshow …" or "[row|lane]". */
static void put_synopsis_words(struct pr_buf *out, const char *synopsis)
{
	const char *line = synopsis, *gap = "";

	while (*line) {
		const char *word = line + (*line == '[');

		while (islower((unsigned char)*word)) {
			size_t len = strspn(word, "abcdefghijklmnopqrstuvwxyz");

			if (!is_repeated(synopsis, word, len))
				pr_buf_printf(out, "%s%.*s", gap, (int)len, word);
			gap = " ";
			word += len + (word[len] == '|');
		}
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
}

/* The words that may be the first argument of a command. */
static void put_arguments(struct pr_buf *out, const struct cli_command *command)
{
	if (strcmp(command->name, "help") == 0) {
		put_commands(out);
	} else if (strcmp(command->name, "sinks") == 0) {
		for (size_t i = 0; pr_sinks[i]; i++)
			pr_buf_printf(out, "%s%s", i > 0 ? " " : "", pr_sinks[i]->schemes[0]);
	} else {
		put_synopsis_words(out, command->synopsis);
	}
}

/* Text inside single quotes; a backslash goes before each character of special. */
static void put_quoted(struct pr_buf *out, const char *text, const char *special, const char *quote)
{
	for (; *text; text++) {
		if (*text == '\'')
			pr_buf_puts(out, quote);
		else if (strchr(special, *text))
			pr_buf_printf(out, "\\%c", *text);
		else
			pr_buf_putc(out, *text);
	}
}

/* bash: functions that print words for compgen. */

static void put_bash_options(struct pr_buf *out, const struct pr_param *param)
{
	for (; param && param->name; param++) {
		pr_buf_printf(out, " --%s", param->name);
		if (param->letter)
			pr_buf_printf(out, " -%c", param->letter);
	}
}

/* One case per option with a value: the words that the value may be. */
static void put_bash_values(struct pr_buf *out, const char *command, const struct pr_param *param)
{
	for (; param && param->name; param++) {
		if (param->type == PR_PARAM_FLAG)
			continue;
		pr_buf_printf(out, "\t%s\" --%s\"", command, param->name);
		if (param->letter)
			pr_buf_printf(out, "|%s\" -%c\"", command, param->letter);
		pr_buf_puts(out, ") echo \"");
		if (takes_file(param))
			pr_buf_puts(out, "FILE");
		else if (param->type == PR_PARAM_CHOICE)
			put_words(out, param->choices);
		pr_buf_puts(out, "\" ;;\n");
	}
}

static const char bash_function[] =
	"_postroom()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words i\n"
	"\t[[ $cur != = ]] || cur=\n"
	"\t[[ $prev != = ]] || prev=${COMP_WORDS[COMP_CWORD-2]}\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tif _postroom_value \" ${COMP_WORDS[i]}\" >/dev/null; then\n"
	"\t\t\t[[ ${COMP_WORDS[i+1]} != = ]] || ((i++))\n"
	"\t\t\t((i++))\n"
	"\t\telif [[ ${COMP_WORDS[i]} != -* ]]; then\n"
	"\t\t\tcommand=${COMP_WORDS[i]}\n"
	"\t\t\tbreak\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif words=$(_postroom_value \"$command $prev\"); then\n"
	"\t\t:\n"
	"\telif [[ $cur == -* ]]; then\n"
	"\t\twords=$(_postroom_options \"$command\")\n"
	"\telse\n"
	"\t\twords=$(_postroom_arguments \"$command\")\n"
	"\t\t[[ $prev == \"$command\" || -z $command ]] || words=FILE\n"
	"\tfi\n"
	"\tif [[ $words == FILE ]]; then\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	"\telse\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
	"\tfi\n"
	"}\n"
	"complete -F _postroom postroom\n";

static void put_bash(struct pr_buf *out)
{
	pr_buf_puts(out, "_postroom_options()\n{\n\tcase $1 in\n");
	for (size_t i = 0; cli_commands[i]; i++) {
		pr_buf_printf(out, "\t%s) echo \"", cli_commands[i]->name);
		put_bash_options(out, cli_commands[i]->params);
		pr_buf_puts(out, "\" ;;\n");
	}
	pr_buf_puts(out, "\tesac\n\techo \"");
	put_bash_options(out, cli_global_params);
	pr_buf_puts(out, "\"\n}\n_postroom_arguments()\n{\n\tcase $1 in\n\t'') echo \"");
	put_commands(out);
	pr_buf_puts(out, "\" ;;\n");
	for (size_t i = 0; cli_commands[i]; i++) {
		pr_buf_printf(out, "\t%s) echo \"", cli_commands[i]->name);
		put_arguments(out, cli_commands[i]);
		pr_buf_puts(out, "\" ;;\n");
	}
	pr_buf_puts(out, "\tesac\n}\n_postroom_value()\n{\n\tcase $1 in\n");
	put_bash_values(out, "*", cli_global_params);
	for (size_t i = 0; cli_commands[i]; i++)
		put_bash_values(out, cli_commands[i]->name, cli_commands[i]->params);
	pr_buf_puts(out, "\t*) return 1 ;;\n\tesac\n}\n");
	pr_buf_puts(out, bash_function);
}

/* zsh: specifications for _arguments. */

static void put_zsh_value(struct pr_buf *out, const struct pr_param *param)
{
	if (param->type == PR_PARAM_FLAG)
		return;
	pr_buf_printf(out, ":%s:", param->value ? param->value : "VALUE");
	if (takes_file(param))
		pr_buf_puts(out, "_files");
	if (param->type == PR_PARAM_CHOICE) {
		pr_buf_putc(out, '(');
		put_words(out, param->choices);
		pr_buf_putc(out, ')');
	}
}

static void put_zsh_options(struct pr_buf *out, const struct pr_param *param)
{
	for (; param && param->name; param++) {
		const char *several = param->type == PR_PARAM_LIST ? "*" : "";

		if (param->letter)
			pr_buf_printf(out, "\t\t'(-%c --%s)'{-%c%s,--%s%s}'[", param->letter,
				      param->name, param->letter,
				      param->type == PR_PARAM_FLAG ? "" : "+", param->name,
				      param->type == PR_PARAM_FLAG ? "" : "=");
		else
			pr_buf_printf(out, "\t\t'%s--%s%s[", several, param->name,
				      param->type == PR_PARAM_FLAG ? "" : "=");
		put_quoted(out, param->help, "[]\\:", "'\\''");
		pr_buf_putc(out, ']');
		put_zsh_value(out, param);
		pr_buf_puts(out, "'\n");
	}
}

static void put_zsh_command(struct pr_buf *out, const struct cli_command *command)
{
	PR_CLEANUP_BUF struct pr_buf words = { 0 };

	put_arguments(&words, command);
	pr_buf_printf(out, "\t%s) specs=(\n", command->name);
	put_zsh_options(out, command->params);
	if (words.len > 0)
		pr_buf_printf(out, "\t\t'1:argument:(%s)'\n", pr_buf_text(&words));
	pr_buf_puts(out, "\t\t'*:argument:_files'\n\t) ;;\n");
}

static void put_zsh(struct pr_buf *out)
{
	pr_buf_puts(out, "#compdef postroom\n"
			 "_postroom()\n{\n"
			 "\tlocal curcontext=$curcontext state line\n"
			 "\tlocal -a specs globals commands\n"
			 "\tglobals=(\n");
	put_zsh_options(out, cli_global_params);
	pr_buf_puts(out, "\t)\n\tcommands=(\n");
	for (size_t i = 0; cli_commands[i]; i++) {
		pr_buf_printf(out, "\t\t'%s:", cli_commands[i]->name);
		put_quoted(out, cli_commands[i]->summary, "\\:", "'\\''");
		pr_buf_puts(out, "'\n");
	}
	pr_buf_puts(out, "\t)\n"
			 "\t_arguments -C $globals '1:command:->command' '*::argument:->argument'\n"
			 "\t[[ $state != command ]] || _describe command commands\n"
			 "\t[[ $state == argument ]] || return\n"
			 "\tcase $words[1] in\n");
	for (size_t i = 0; cli_commands[i]; i++)
		put_zsh_command(out, cli_commands[i]);
	pr_buf_puts(out, "\tesac\n"
			 "\t_arguments $globals $specs\n}\n"
			 "if [[ $funcstack[1] == _postroom ]]; then _postroom \"$@\"\n"
			 "else compdef _postroom postroom; fi\n");
}

/* fish: one `complete` line per command, option and word. */

static void put_fish_options(struct pr_buf *out, const char *command, const struct pr_param *param)
{
	for (; param && param->name; param++) {
		pr_buf_puts(out, "complete -c postroom ");
		if (command)
			pr_buf_printf(out, "-n '__fish_seen_subcommand_from %s' ", command);
		pr_buf_printf(out, "-l %s ", param->name);
		if (param->letter)
			pr_buf_printf(out, "-s %c ", param->letter);
		if (takes_file(param)) {
			pr_buf_puts(out, "-r -F ");
		} else if (param->type != PR_PARAM_FLAG) {
			pr_buf_puts(out, "-x -a '");
			if (param->type == PR_PARAM_CHOICE)
				put_words(out, param->choices);
			pr_buf_puts(out, "' ");
		}
		pr_buf_puts(out, "-d '");
		put_quoted(out, param->help, "\\", "\\'");
		pr_buf_puts(out, "'\n");
	}
}

static void put_fish(struct pr_buf *out)
{
	put_fish_options(out, NULL, cli_global_params);
	for (size_t i = 0; cli_commands[i]; i++) {
		const struct cli_command *command = cli_commands[i];
		PR_CLEANUP_BUF struct pr_buf words = { 0 };

		pr_buf_printf(out, "complete -c postroom -n __fish_use_subcommand -f -a %s -d '",
			      command->name);
		put_quoted(out, command->summary, "\\", "\\'");
		pr_buf_puts(out, "'\n");
		put_fish_options(out, command->name, command->params);
		put_arguments(&words, command);
		if (words.len > 0)
			pr_buf_printf(
				out,
				"complete -c postroom -n '__fish_seen_subcommand_from %s; and "
				"not __fish_seen_subcommand_from %s' -f -a '%s'\n",
				command->name,
				strcmp(command->name, "help") == 0 ? "''" : pr_buf_text(&words),
				pr_buf_text(&words));
	}
}

static int completion_run(struct cli *cli, void *options)
{
	static void (*const put[])(struct pr_buf *) = { put_bash, put_zsh, put_fish };

	(void)options;
	for (size_t i = 0; shells[i]; i++) {
		if (strcmp(cli->args[0], shells[i]) == 0) {
			put[i](&cli->out);
			return CLI_DONE;
		}
	}
	return cli_usage(cli, "completion: unknown shell %s; use bash, zsh or fish", cli->args[0]);
}

const struct cli_command cmd_completion = {
	.name = "completion",
	.synopsis = "bash|zsh|fish",
	.summary = "Print the completion script of a shell",
	.about = "Prints a script that completes commands, options and their values. Packages "
		 "install it; without a package, load it in the startup file of your shell.",
	.examples = "source <(postroom completion bash)\n"
		    "source <(postroom completion zsh)\n"
		    "postroom completion fish | source",
	.min_args = 1,
	.max_args = 1,
	.run = completion_run,
};
