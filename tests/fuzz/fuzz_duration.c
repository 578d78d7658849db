/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "base/time.h"

static void check_round_trip(int64_t ms)
{
	char shown[PR_DURATION_SIZE];
	int64_t again = -1;

	pr_duration_format(ms, shown);
	HOLDS(pr_duration_parse(shown, &again, NULL) == POSTROOM_OK);
	HOLDS(again == ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), shown[PR_RFC3339_SIZE];
	struct pr_err err = { 0 };
	int64_t ms = -1, number = 0;

	HOLDS(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (pr_duration_parse(text, &ms, &err) == POSTROOM_OK) {
		HOLDS(ms >= 0);
		check_round_trip(ms);
	} else {
		HOLDS(err.status == POSTROOM_INVALID && *err.text && ms == -1);
	}
	free(text);

	memcpy(&number, data, size < sizeof(number) ? size : sizeof(number));
	check_round_trip(number & INT64_MAX);
	pr_rfc3339(number, shown);
	HOLDS(shown[strlen(shown) - 1] == 'Z' && strlen(shown) < sizeof(shown));
	return 0;
}
