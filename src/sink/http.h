/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the HTTP sink: http.c runs requests, http_request.c writes them, http_answer.c reads
 * responses, http_settings.c checks settings.
 */
#ifndef PR_SINK_HTTP_H
#define PR_SINK_HTTP_H

#include "base/json.h"
#include "sink/cloudevents.h"
#include "sink/sink.h"
#include "sink/webhook.h"

#include <curl/curl.h>
#include <sys/socket.h>

/* Maximum bytes of a response body in the reason. */
#define PR_HTTP_KEEP 1024

/* As in the tables of http.c. */
enum { PR_HTTP_BINARY, PR_HTTP_STRUCTURED };
enum { PR_HTTP_POST, PR_HTTP_PUT };

/* State of one request at a time. Its memory is reused for the next message. */
struct pr_http_request {
	struct pr_http *http;
	CURL *easy;
	postroom_delivery *item; /* NULL: free */

	struct pr_arena arena; /* the header lines and their list */
	struct curl_slist *headers;
	struct curl_slist **end;     /* where the next one is appended */
	struct curl_slist **foreign; /* the list after our own headers: those only for the sink's
				      * origin */
	struct pr_buf line, text, source, content;
	struct pr_buf url; /* empty: the sink's address */
	bool failed;	   /* out of memory for any of these */

	bool answered; /* status and headers are complete */
	bool denied;   /* deny_private prevented the connection */
	size_t head_bytes, answer_bytes;
	char answer[PR_HTTP_KEEP];
	char location[200];
	char retry_after[64];
	char error[CURL_ERROR_SIZE];
};

struct pr_http {
	struct pr_sink sink;
	int64_t method;
	int64_t mode;
	int64_t connections;
	int64_t connect_timeout_ms;
	int64_t follow;
	bool deny_private;
	const char *query;
	const char *source;
	const char *proxy;
	const char *ca;
	const char *cert;
	const char *key;
	const char *key_password;
	struct pr_param_list secrets;
	struct pr_param_list headers;

	CURLM *multi;
	struct pr_http_request *requests; /* as many as connections */
	size_t running;
	int64_t timeout_ms;	  /* of this call */
	bool answered, timed_out; /* in this call: any response, any timeout */
	struct pr_buf url;
	size_t origin_len; /* address up to the path */
	bool templated;	   /* path and query are a template, see sink/target.h */
	struct curl_slist fixed[PR_PARAM_LIST_MAX + 1]; /* headers of every request */
	struct pr_webhook webhook;
};

/* Checks the proxy and the files for TLS. */
int pr_http_check(const struct pr_http *http, struct pr_err *err);

/* Checks the settings that concern every request, and prepares their shared state. */
int pr_http_prepare(struct pr_http *http, struct pr_err *err);

/*
 * Writes headers and content for request->item. False: it cannot be sent, and has its verdict. The
 * memory is valid until the next call.
 */
bool pr_http_write(struct pr_http_request *request, const struct pr_flight *flight,
		   struct pr_span *ret_content);

/* Removes all headers except our own from the following requests, which go to another origin. */
void pr_http_drop_headers(struct pr_http_request *request);

/* Sets the callbacks that receive the response. */
void pr_http_listen(struct pr_http_request *request);
void pr_http_reset_answer(struct pr_http_request *request);

/* Sets the verdict: by the status if there was a response, otherwise by the error. */
void pr_http_judge(struct pr_http_request *request, CURLcode code, const struct pr_flight *flight);

/* True if the address is not public: local, private or reserved. */
bool pr_http_is_private(const struct sockaddr *address);

#endif
