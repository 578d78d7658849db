/* SPDX-License-Identifier: Apache-2.0 */
#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct unit {
	const char *name;
	int64_t ms;
} units[] = {
	{ "d", 86400000 }, { "h", 3600000 }, { "m", 60000 },
	{ "s", 1000 },	   { "ms", 1 },	     { NULL, 0 },
};

static int64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t pr_now_us(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t pr_mono_us(void)
{
	/* CLOCK_MONOTONIC does not advance during suspend, while the database's leases expire. */
	return read_clock(CLOCK_BOOTTIME);
}

static int refuse_time(struct pr_err *err, const char *text, const char *why)
{
	return pr_err_set(err, POSTROOM_INVALID,
			  "\"%.60s\" is not a duration: %s; write it like 250ms, 5s, 10m, 2h or 7d",
			  text, why);
}

/* A number that does not fit becomes -1 and remains -1. */
static bool read_digit(const char **at, int64_t *number)
{
	int digit = **at - '0';

	if (digit < 0 || digit > 9)
		return false;
	if (*number < 0 || __builtin_mul_overflow(*number, 10, number) ||
	    __builtin_add_overflow(*number, digit, number))
		*number = -1;
	(*at)++;
	return true;
}

int pr_duration_parse(const char *text, int64_t *ret_ms, struct pr_err *err)
{
	const struct unit *unit = units;
	const char *at = text;
	int64_t whole = 0, fraction = 0, scale = 1, ms;

	if (!read_digit(&at, &whole))
		return refuse_time(err, text, *at == '-' ? "it is negative" : "it has no number");
	while (read_digit(&at, &whole))
		;
	if (*at == '.') {
		at++;
		while (scale < 1000000000 && read_digit(&at, &fraction))
			scale *= 10;
		if (scale == 1)
			return refuse_time(err, text, "no digit follows the point");
		if (*at >= '0' && *at <= '9')
			return refuse_time(err, text, "it is finer than a millisecond");
	}
	if (*at == '\0' && whole == 0 && fraction == 0) {
		*ret_ms = 0;
		return POSTROOM_OK;
	}
	while (unit->name && strcmp(unit->name, at) != 0)
		unit++;
	if (!unit->name)
		return refuse_time(err, text, *at ? "its unit is unknown" : "it has no unit");
	if (fraction * unit->ms % scale != 0)
		return refuse_time(err, text, "it is finer than a millisecond");
	if (whole < 0 || __builtin_mul_overflow(whole, unit->ms, &ms) ||
	    __builtin_add_overflow(ms, fraction * unit->ms / scale, &ms))
		return refuse_time(err, text, "it is too long");
	*ret_ms = ms;
	return POSTROOM_OK;
}

void pr_duration_format(int64_t ms, char out[PR_DURATION_SIZE])
{
	const struct unit *unit = units;

	if (ms == 0) {
		memcpy(out, "0s", sizeof("0s"));
		return;
	}
	while (ms % unit->ms != 0)
		unit++;
	snprintf(out, PR_DURATION_SIZE, "%" PRId64 "%s", ms / unit->ms, unit->name);
}

void pr_rfc3339(int64_t time_us, char out[PR_RFC3339_SIZE])
{
	int64_t micros = time_us % 1000000;
	time_t seconds = (time_t)(time_us / 1000000);
	struct tm tm;
	size_t used;

	if (micros < 0) {
		micros += 1000000;
		seconds--;
	}
	gmtime_r(&seconds, &tm);
	used = strftime(out, PR_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + used, PR_RFC3339_SIZE - used, ".%06dZ", (int)micros);
}

#define RATE_MIN 1e-9
#define RATE_MAX 1e9

/* Reads digits with an optional decimal point; 0 if there are none. */
static double read_decimal(const char **at)
{
	double number = 0, scale = 1;

	for (; **at >= '0' && **at <= '9'; (*at)++)
		number = number * 10 + (**at - '0');
	if (**at != '.')
		return number;
	for ((*at)++; **at >= '0' && **at <= '9'; (*at)++) {
		scale /= 10;
		number += (**at - '0') * scale;
	}
	return number;
}

int pr_rate_parse(const char *text, double *ret, struct pr_err *err)
{
	static const struct {
		const char *suffix;
		double seconds;
	} periods[] = { { "", 1 }, { "/s", 1 }, { "/m", 60 }, { "/h", 3600 } };
	const char *at = text;
	double number = read_decimal(&at);

	for (size_t i = 0; i < sizeof(periods) / sizeof(*periods); i++) {
		double rate = number / periods[i].seconds;

		if (strcmp(at, periods[i].suffix) == 0 && rate >= RATE_MIN && rate <= RATE_MAX) {
			*ret = rate;
			return POSTROOM_OK;
		}
	}
	return pr_err_set(
		err, POSTROOM_INVALID,
		"\"%.60s\" is not a rate; write messages per second, minute or hour, as in "
		"500/s, 30/m or 1000/h",
		text);
}

/* Reads count digits. False: there are fewer. */
static bool read_digits(const char **at, int count, int *ret)
{
	int value = 0;

	for (int i = 0; i < count; i++, (*at)++) {
		if (**at < '0' || **at > '9')
			return false;
		value = value * 10 + (**at - '0');
	}
	*ret = value;
	return true;
}

static bool read_char(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

/* ".123456789": microseconds; further digits are dropped. */
static bool read_fraction(const char **at, int64_t *ret_us)
{
	int64_t scale = 100000;
	int digits = 0;

	*ret_us = 0;
	if (!read_char(at, '.'))
		return true;
	for (; **at >= '0' && **at <= '9'; (*at)++, scale /= 10, digits++)
		*ret_us += (**at - '0') * scale;
	return digits >= 1 && digits <= 9;
}

/* "Z" or "+02:00": seconds east of UTC. */
static bool read_offset(const char **at, int64_t *ret)
{
	int sign = **at == '-' ? -1 : 1, hours, minutes;

	*ret = 0;
	if (read_char(at, 'Z') || read_char(at, 'z'))
		return true;
	if (!read_char(at, sign < 0 ? '-' : '+') || !read_digits(at, 2, &hours) ||
	    !read_char(at, ':') || !read_digits(at, 2, &minutes) || hours > 23 || minutes > 59)
		return false;
	*ret = sign * (hours * 3600 + minutes * 60);
	return true;
}

static bool read_date(const char **at, struct tm *tm)
{
	static const int days[] = { 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int year, month, day;

	if (!read_digits(at, 4, &year) || !read_char(at, '-') || !read_digits(at, 2, &month) ||
	    !read_char(at, '-') || !read_digits(at, 2, &day))
		return false;
	if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days[month - 1])
		return false;
	if (month == 2 && day == 29 && (year % 4 != 0 || (year % 100 == 0 && year % 400 != 0)))
		return false;
	tm->tm_year = year - 1900;
	tm->tm_mon = month - 1;
	tm->tm_mday = day;
	return true;
}

static bool read_time_of_day(const char **at, struct tm *tm)
{
	return read_digits(at, 2, &tm->tm_hour) && read_char(at, ':') &&
	       read_digits(at, 2, &tm->tm_min) && read_char(at, ':') &&
	       read_digits(at, 2, &tm->tm_sec) && tm->tm_hour < 24 && tm->tm_min < 60 &&
	       tm->tm_sec < 60;
}

int pr_rfc3339_parse(const char *text, int64_t *ret_us, struct pr_err *err)
{
	const char *at = text;
	struct tm tm = { 0 };
	int64_t fraction_us, offset, us;

	if (read_date(&at, &tm) &&
	    (read_char(&at, 'T') || read_char(&at, 't') || read_char(&at, ' ')) &&
	    read_time_of_day(&at, &tm) && read_fraction(&at, &fraction_us) &&
	    read_offset(&at, &offset) && *at == '\0') {
		us = ((int64_t)timegm(&tm) - offset) * 1000000 + fraction_us;
		if (us >= 0) {
			*ret_us = us;
			return POSTROOM_OK;
		}
	}
	return pr_err_set(err, POSTROOM_INVALID,
			  "\"%.60s\" is not a time such as 2026-11-15T21:37:42Z", text);
}
