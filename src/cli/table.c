/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/time.h"

#include <string.h>

static size_t count_characters(const char *text, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += ((unsigned char)text[i] & 0xc0) != 0x80;
	return count;
}

/* The length in bytes of the first max characters. */
static size_t cut_at(const char *text, size_t len, size_t max)
{
	size_t at = 0;

	while (at < len) {
		if (((unsigned char)text[at] & 0xc0) != 0x80 && max-- == 0)
			break;
		at++;
	}
	return at;
}

void cli_table_begin(struct cli_table *table, struct cli *cli, const char *const *heads)
{
	table->cli = cli;
	table->heads = heads;
	table->columns = 0;
	while (heads[table->columns])
		table->columns++;
	memset(table->width, 0, sizeof(table->width));
	memset(table->right, 0, sizeof(table->right));
	table->headed = false;
	table->text = (struct pr_buf){ 0 };
	table->count = 0;
	for (size_t i = 0; i < table->columns; i++)
		table->width[i] = strlen(heads[i]);
}

static void pad(struct pr_buf *out, size_t have, size_t width)
{
	for (; have < width; have++)
		pr_buf_putc(out, ' ');
}

static void print_cell(struct cli_table *table, size_t column, size_t *at, const char *text,
		       const struct cli_cell *cell)
{
	struct pr_buf *out = &table->cli->out;
	bool last = column + 1 == table->columns;
	size_t room = cli_columns();

	if (table->right[column])
		pad(out, cell->width, table->width[column]);
	/* Fewer than ten columns are useless: let the terminal wrap instead. */
	if (last && room >= *at + 10 && *at + cell->width > room) {
		cli_put_coloured(table->cli, cell->colour, text,
				 cut_at(text, cell->len, room - *at - 1));
		pr_buf_puts(out, "…");
	} else {
		cli_put_coloured(table->cli, cell->colour, text, cell->len);
	}
	if (!last) {
		if (!table->right[column])
			pad(out, cell->width, table->width[column]);
		pr_buf_puts(out, "  ");
	}
	*at += table->width[column] + 2;
}

static void print_head(struct cli_table *table)
{
	size_t at = 0;

	for (size_t i = 0; i < table->columns; i++) {
		size_t len = strlen(table->heads[i]);
		const struct cli_cell head = { .len = len, .width = len, .colour = CLI_BOLD };

		print_cell(table, i, &at, table->heads[i], &head);
	}
	pr_buf_putc(&table->cli->out, '\n');
}

static bool print_rows(struct cli_table *table)
{
	struct pr_buf *out = &table->cli->out;
	bool terminal = table->cli->out_terminal;
	size_t at = 0;

	if (table->text.failed) { /* its cells are dangling */
		table->cli->out.failed = true;
		return cli_flush(table->cli);
	}
	if (terminal && !table->headed && table->count > 0)
		print_head(table);
	table->headed = true;
	for (size_t i = 0; i < table->count; i++) {
		const struct cli_cell *cell = &table->cells[i];
		const char *text = pr_buf_text(&table->text) + cell->offset;
		size_t column = i % table->columns;
		bool last = column + 1 == table->columns;

		if (terminal)
			print_cell(table, column, &at, text, cell);
		else
			pr_buf_append(out, text, cell->len);
		if (last)
			at = 0;
		if (last || !terminal)
			pr_buf_putc(out, last ? '\n' : '\t');
	}
	table->count = 0;
	pr_buf_reset(&table->text);
	return cli_flush_some(table->cli);
}

static struct cli_cell *add_cell(struct cli_table *table)
{
	if (table->count == table->columns * CLI_TABLE_ROWS)
		print_rows(table);
	return &table->cells[table->count++];
}

static void measure_cell(struct cli_table *table, struct cli_cell *cell)
{
	size_t column = (table->count - 1) % table->columns;

	cell->len = table->text.len - cell->offset;
	cell->width = count_characters(pr_buf_text(&table->text) + cell->offset, cell->len);
	if (cell->width > table->width[column])
		table->width[column] = cell->width;
}

void cli_table_cell(struct cli_table *table, enum cli_colour colour, const char *text)
{
	struct cli_cell *cell = add_cell(table);

	cell->offset = table->text.len;
	cell->colour = colour;
	cli_put_text(&table->text, text ? text : "");
	measure_cell(table, cell);
}

void cli_table_time(struct cli_table *table, int64_t time_us)
{
	char text[PR_RFC3339_SIZE];

	pr_rfc3339(time_us, text);
	if (table->cli->out_terminal)
		text[sizeof("2026-11-15T21:37:42") - 1] = '\0';
	cli_table_cell(table, CLI_PLAIN, text);
}

void cli_table_int(struct cli_table *table, int64_t number)
{
	struct cli_cell *cell = add_cell(table);

	cell->offset = table->text.len;
	cell->colour = CLI_PLAIN;
	if (table->cli->out_terminal)
		cli_put_count(&table->text, number);
	else
		pr_buf_printf(&table->text, "%lld", (long long)number);
	measure_cell(table, cell);
	table->right[(table->count - 1) % table->columns] = true;
}

bool cli_table_end(struct cli_table *table)
{
	bool fine = print_rows(table);

	pr_buf_release(&table->text);
	return fine;
}
