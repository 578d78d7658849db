/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, from its target's bytes to its answer. Nothing here needs a connection, so that a
 * fuzzer can do without one.
 */
#ifndef PR_ADMIN_REQUEST_H
#define PR_ADMIN_REQUEST_H

#include "admin/settings.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/members.h"

#include <postroom/store.h>

/* Larger bodies are refused: the longest filter needs a tenth of it. */
#define PR_ADMIN_BODY_MAX ((size_t)64 * 1024)
/* Up to this a body is read to its end and dropped, so that its sender can read the answer. */
#define PR_ADMIN_DROP_MAX ((size_t)4 * 1024 * 1024)
#define PR_ADMIN_TARGET_MAX ((size_t)16 * 1024)
#define PR_ADMIN_SEGMENTS 8

/* Parameters that go together. A route takes those of its sets. */
enum pr_param_set {
	PR_SET_OUTBOX = 1,	/* a filter of the outbox */
	PR_SET_INBOX = 2,	/* a filter of the inbox */
	PR_SET_OUTBOX_PAGE = 4, /* which page */
	PR_SET_INBOX_PAGE = 8,
	PR_SET_EXPORT = 16,
	PR_SET_GROUPS = 32,
};

struct pr_admin_query {
	postroom_filter filter;
	int64_t page, page_size;
	int64_t limit; /* of an export, of groups, of rows that an action changes; 0: not given */
	int64_t rate;
	bool dry_run;
	uint64_t given; /* bit by bit: the parameters that have a value */
};

enum pr_admin_type { PR_TYPE_TEXT, PR_TYPE_UUID, PR_TYPE_TIME, PR_TYPE_INT, PR_TYPE_WORD };

struct pr_admin_param {
	const char *name;
	enum pr_admin_type type;
	unsigned sets;
	size_t offset;	  /* in struct pr_admin_query */
	int64_t min, max; /* of a number; max of a text is its length in bytes */
	const char *const *words;
	const char *fallback; /* of a number, for the description */
	const char *empty;    /* the value that stands for an empty text; NULL: none does */
	const char *about;
};
extern const struct pr_admin_param pr_admin_query_params[]; /* ends with name NULL */

enum pr_admin_method { PR_METHOD_GET, PR_METHOD_POST, PR_METHOD_DELETE, PR_METHODS };
extern const char *const pr_admin_methods[PR_METHODS];

enum pr_admin_role { PR_ROLE_NOBODY, PR_ROLE_READER, PR_ROLE_OPERATOR };

struct pr_admin_answer {
	int code;   /* 0: none yet */
	int failed; /* status of a store that failed; 0: none has */
	const char *type;
	struct pr_buf text;
	const unsigned char *fixed; /* instead of text */
	size_t fixed_len;
	const char *allow;    /* with 405 */
	const char *filename; /* of a download */
	bool page;	      /* HTML with scripts of its own */
};

struct pr_admin_request;

struct pr_admin_route {
	enum pr_admin_method method;
	const char *path; /* "/api/v1/outbox/{id}" */
	unsigned flags;
	unsigned sets; /* of parameters in the query, or of the filter in the body */
	void (*handle)(struct pr_admin_request *request);
	const char *operation; /* operationId */
	const char *summary;
	const char *schema; /* of the answer; NULL: text */
	const char *type;   /* of the answer; NULL: JSON */
};

enum pr_route_flag {
	PR_ROUTE_OPEN = 1,	 /* needs no token */
	PR_ROUTE_DATABASE = 2,	 /* runs in the thread that has the store */
	PR_ROUTE_BODY = 4,	 /* takes a body */
	PR_ROUTE_PAGE = 8,	 /* a file of the dashboard; not described */
	PR_ROUTE_INBOX = 16,	 /* concerns the inbox, not the outbox */
	PR_ROUTE_UNHEALTHY = 32, /* 503 is one of its answers */
	PR_ROUTE_CSV = 64,
	PR_ROUTE_DOCTOR = 128, /* runs in the thread that has the doctor */
};

extern const struct pr_admin_route pr_admin_routes[]; /* ends with path NULL */

enum pr_request_step {
	PR_STEP_BEGIN,	/* the target is known */
	PR_STEP_BODY,	/* its body is being read */
	PR_STEP_QUEUED, /* the thread of the store has it */
	PR_STEP_DONE	/* it has its answer */
};

struct pr_admin;
struct pr_admin_export;
struct pr_admin_socket;
struct MHD_Connection;

struct pr_admin_request {
	struct pr_admin *admin;
	struct MHD_Connection *connection;
	struct pr_admin_socket *socket;
	struct pr_admin_settings *settings;
	char *target; /* as it was sent */
	const struct pr_admin_route *route;
	enum pr_admin_role role;
	const char *actor;
	struct pr_arena arena;
	const char *id;	     /* of the path */
	const char *handler; /* of the path */
	struct pr_admin_query query;
	struct pr_buf body;
	size_t received; /* bytes of the body; those beyond its limit are dropped */
	struct pr_admin_answer answer;
	enum pr_request_step step;
	int64_t begun_us;
	size_t unread;		       /* bytes of the answer, if it is large */
	struct pr_admin_request *next; /* in the queue */
	struct pr_admin_export *export;
};

void pr_request_init(struct pr_admin_request *request);
void pr_request_release(struct pr_admin_request *request);

/*
 * Each returns true to go on, or has set an error as the answer: route and parameters from the
 * target, then those of the body.
 */
bool pr_request_read_target(struct pr_admin_request *request, const char *method);
bool pr_request_read_body(struct pr_admin_request *request);

/* routes.c: the route of decoded segments; NULL: none, and an error is the answer. */
const struct pr_admin_route *pr_route_find(struct pr_admin_request *request, const char *method,
					   char *const *segments, size_t count);

/* params.c: sets one value; false: it is wrong, and an error is the answer. */
bool pr_request_set(struct pr_admin_request *request, unsigned sets, const char *name,
		    const char *text);
const struct pr_admin_param *pr_admin_param_find(unsigned sets, const char *name);
bool pr_time_parse(const char *text, int64_t *ret_us);

/* decode.c: percent-decoding in place; plus: '+' is a blank. NULL, or why it is refused. */
const char *pr_percent_decode(char *text, bool plus);

/* answer.c: sets the answer and returns false, so that `return pr_request_refuse(…)` reads well. */
bool pr_request_refuse(struct pr_admin_request *request, int code, const char *word,
		       const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same for a failure of the store. */
bool pr_request_fail(struct pr_admin_request *request, const struct pr_err *err);
/* Answers 200 with what is in answer.text. */
void pr_request_succeed(struct pr_admin_request *request);

/* More members of a JSON object; see base/members.h. */
void pr_put_bool(struct pr_buf *out, const char *name, bool value);
void pr_put_real(struct pr_buf *out, const char *name, double value);  /* < 0: null */
void pr_put_seconds(struct pr_buf *out, const char *name, int64_t us); /* < 0: null */
/* Text that is checked JSON; NULL: null. */
void pr_put_json(struct pr_buf *out, const char *name, const char *text);

#endif
