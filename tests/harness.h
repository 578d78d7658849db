/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests in C. A test is a function that returns when all is well:
 *
 *	TEST(E3_parallel_producers_leave_one_row)
 *	{
 *		CHECK_INT(count(db), 1);
 *	}
 *
 * Each runs in a process of its own, so that a crash is one failed test, with a
 * scratch directory as its working directory that is removed afterwards. A
 * runner prints `ok NAME` or `not ok NAME` with the reason, and at the end
 * `N passed, N failed`. Arguments select tests by a part of their name.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

void test_register(struct test *test);
void test_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));

#define TEST(test_name)                                                                            \
	static void test_name(void);                                                               \
	__attribute__((constructor)) static void register_##test_name(void)                        \
	{                                                                                          \
		static struct test test = { .name = #test_name, .run = test_name };                \
		test_register(&test);                                                              \
	}                                                                                          \
	static void test_name(void)

/*
 * A test that runs once for each of several things: the file's own begin_test(&which)
 * and end_test() enclose it.
 */
#define REGISTER_FOR(test_name, which)                                                             \
	static void test_name##_of_##which(void)                                                   \
	{                                                                                          \
		begin_test(&which);                                                                \
		test_name();                                                                       \
		end_test();                                                                        \
	}                                                                                          \
	__attribute__((constructor)) static void register_##test_name##_##which(void)              \
	{                                                                                          \
		static struct test test = { .name = #test_name " " #which,                         \
					    .run = test_name##_of_##which };                       \
		test_register(&test);                                                              \
	}

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test_fail(__FILE__, __LINE__, "%s", #condition);                           \
	} while (0)

/* With an explanation, printf-like. */
#define CHECK_MSG(condition, ...)                                                                  \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test_fail(__FILE__, __LINE__, __VA_ARGS__);                                \
	} while (0)

#define CHECK_INT(actual, expected)                                                                \
	do {                                                                                       \
		int64_t check_a = (int64_t)(actual), check_e = (int64_t)(expected);                \
		if (check_a != check_e)                                                            \
			test_fail(__FILE__, __LINE__, "%s is %lld, not %lld", #actual,             \
				  (long long)check_a, (long long)check_e);                         \
	} while (0)

#define CHECK_STR(actual, expected)                                                                \
	do {                                                                                       \
		const char *check_a = (actual), *check_e = (expected);                             \
		if (!check_a || !check_e || strcmp(check_a, check_e) != 0)                         \
			test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #actual,         \
				  check_a ? check_a : "(null)", check_e ? check_e : "(null)");     \
	} while (0)

#define CHECK_CONTAINS(actual, part)                                                               \
	do {                                                                                       \
		const char *check_a = (actual), *check_p = (part);                                 \
		if (!check_a || !strstr(check_a, check_p))                                         \
			test_fail(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #actual,     \
				  check_a ? check_a : "(null)", check_p);                          \
	} while (0)

#endif
