/* SPDX-License-Identifier: Apache-2.0 */
/* Version, revision, build options, schema versions, and the versions of the loaded libraries. */
#include "cli/cli.h"

#include "base/revision.h"
#include "sink/sink.h"
#include "store/schema.h"

#include <libpq-fe.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdio.h>
#include <yaml.h>

#ifdef PR_WITH_HTTP
#include <curl/curl.h>
#endif
#ifdef PR_WITH_KAFKA
#include <librdkafka/rdkafka.h>
#endif
#ifdef PR_WITH_NATS
#include <nats/nats.h>
#endif
#ifdef PR_WITH_AMQP
#include "broker/amqp/rabbitmq.h"
#endif

static void put_libraries(struct pr_buf *out)
{
	char libpq[32];

	snprintf(libpq, sizeof(libpq), "%d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
	cli_put_member(out, "sqlite", sqlite3_libversion());
	cli_put_member(out, "libpq", libpq);
	cli_put_member(out, "openssl", OpenSSL_version(OPENSSL_VERSION_STRING));
	cli_put_member(out, "libyaml", yaml_get_version_string());
	cli_put_member(out, "libmicrohttpd", MHD_get_version());
#ifdef PR_WITH_HTTP
	cli_put_member(out, "libcurl", curl_version_info(CURLVERSION_NOW)->version);
#endif
#ifdef PR_WITH_KAFKA
	cli_put_member(out, "librdkafka", rd_kafka_version_str());
#endif
#ifdef PR_WITH_AMQP
	cli_put_member(out, "librabbitmq", amqp_version());
#endif
#ifdef PR_WITH_NATS
	cli_put_member(out, "libnats", nats_GetVersion());
#endif
}

void cli_put_version(struct cli *cli)
{
	struct pr_buf *out = &cli->out;

	if (!cli->global.json) {
		pr_buf_printf(out, "postroom %s\n", postroom_version());
		return;
	}
	cli_begin_object(cli);
	cli_put_member(out, "version", postroom_version());
	cli_put_member(out, "revision", pr_revision());
	cli_put_member(out, "date", pr_revision_date());
	cli_put_member(out, "compiler", pr_compiler());
	cli_put_json_member(out, "build", "{", 1);
	cli_put_member(out, "machine", PR_BUILD_MACHINE);
	cli_put_member(out, "type", PR_BUILD_TYPE);
	cli_put_member(out, "sanitizer", PR_BUILD_SANITIZER);
	pr_buf_putc(out, '}');
	cli_put_json_member(out, "stores", "[", 1);
	for (size_t i = 0; pr_stores[i].ops; i++)
		pr_buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", pr_stores[i].ops->schemes[0]);
	pr_buf_putc(out, ']');
	cli_put_json_member(out, "sinks", "[", 1);
	for (size_t i = 0; pr_sinks[i]; i++)
		pr_buf_printf(out, "%s\"%s\"", i > 0 ? "," : "", pr_sinks[i]->schemes[0]);
	pr_buf_putc(out, ']');
	cli_put_json_member(out, "schema", "{", 1);
	for (size_t i = 0; pr_stores[i].ops; i++)
		cli_put_int_member(out, pr_stores[i].ops->schemes[0],
				   pr_schema_newest(pr_stores[i].schema));
	pr_buf_putc(out, '}');
	cli_put_json_member(out, "libraries", "{", 1);
	put_libraries(out);
	pr_buf_putc(out, '}');
	cli_end_object(cli);
}
