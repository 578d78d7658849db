# SPDX-License-Identifier: Apache-2.0
"""The layouts of known libraries: a waiting row and a new one are delivered as the library's own dispatcher would."""
import json
import re
import subprocess

import pytest

from adopt.linter import find_linter
from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures

ID = '11111111-2222-4333-8444-555555555555'
# name: DDL, table, columns and values of a row, options, parts of its message, what is open after it.
LAYOUTS = {
    'debezium': (
        '''CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
        type varchar(255) NOT NULL, payload jsonb)''', 'outboxevent',
        {'id': ID, 'aggregatetype': 'order', 'aggregateid': '7', 'type': 'OrderCreated', 'payload': '{"a": 1}'}, [],
        {'topic': 'outbox.event.order', 'key': '7', 'payload': {'a': 1}, 'headers': {'id': ID, 'type': 'OrderCreated'}}, None),
    'brighter': (
        '''CREATE TABLE Outbox (Id bigserial PRIMARY KEY, MessageId varchar(255) UNIQUE NOT NULL, Topic varchar(255), MessageType
        varchar(32), Timestamp timestamptz, CorrelationId varchar(255), ReplyTo varchar(255), ContentType varchar(128), PartitionKey
        varchar(128), WorkflowId varchar(255), JobId varchar(255), Dispatched timestamptz, HeaderBag text, Body text, Source
        varchar(255), Type varchar(255), DataSchema varchar(255), Subject varchar(255), TraceParent varchar(255), TraceState
        varchar(255), Baggage text)''', 'outbox',
        {'messageid': ID, 'topic': 'order.created', 'partitionkey': '7', 'body': '{"a": 1}', 'headerbag': '{"x": 1}',
         'correlationid': 'c', 'contenttype': 'application/json'}, [],
        {'id': ID, 'topic': 'order.created', 'key': '7', 'payload': {'a': 1}, 'headers': {'x': '1'}, 'correlation_id': 'c'},
        'dispatched IS NULL'),
    'cap': (
        '''CREATE SCHEMA cap; CREATE TABLE cap.published ("Id" bigint PRIMARY KEY, "Version" varchar(20) NOT NULL, "Name" varchar(200)
        NOT NULL, "Content" text, "Retries" int NOT NULL, "Added" timestamp NOT NULL, "ExpiresAt" timestamp, "StatusName" varchar(50)
        NOT NULL)''', 'cap.published',
        {'Id': '9007199254740993', 'Version': 'v1', 'Name': 'order.created', 'Retries': '0', 'Added': '2026-07-01 12:00',
         'StatusName': 'Scheduled', 'Content': '{"Headers": {"cap-msg-id": "5"}, "Value": {"a": 1}}'}, ['--time-zone', 'Europe/Berlin'],
        {'topic': 'order.created', 'payload': {'a': 1}, 'headers': {'cap-msg-id': '5'}, 'created_at': '2026-07-01 10:00:00+00'},
        '"StatusName" <> \'Succeeded\''),
    'watermill': (
        '''CREATE TABLE watermill_orders ("offset" bigserial, uuid varchar(36) NOT NULL, created_at timestamp NOT NULL DEFAULT now(),
        payload json, metadata json, transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(), PRIMARY KEY (transaction_id, "offset"))''',
        'watermill_orders', {'uuid': ID, 'payload': '{"a": 1}', 'metadata': '{"x": "y"}'}, ['--time-zone', 'UTC'],
        {'id': ID, 'topic': 'orders', 'payload': {'a': 1}, 'headers': {'x': 'y'}}, None),
    'django-outbox-pattern': (
        '''CREATE TABLE published (id uuid PRIMARY KEY, destination varchar(255) NOT NULL, body jsonb NOT NULL, headers jsonb NOT NULL,
        version varchar(100) NOT NULL, status int NOT NULL, retry int NOT NULL, added timestamptz NOT NULL, expires_at timestamptz)''',
        'published', {'id': ID, 'destination': '/topic/order', 'body': '{"a": 1}', 'headers': '{"x": "y"}', 'version': 'v1',
                      'status': '1', 'retry': '0', 'added': '2026-07-01 10:00+00'}, [],
        {'id': ID, 'topic': '/topic/order', 'payload': {'a': 1}, 'headers': {'x': 'y'}, 'created_at': '2026-07-01 10:00:00+00'},
        'status <> 2'),
    'eventuate': (
        '''CREATE SCHEMA eventuate; CREATE TABLE eventuate.message (id varchar(767) PRIMARY KEY, destination text NOT NULL, headers text
        NOT NULL, payload text NOT NULL, published smallint DEFAULT 0, message_partition smallint, creation_time bigint)''',
        'eventuate.message',
        {'id': 'x-1', 'destination': 'orders', 'headers': '{"PARTITION_ID": "7", "ID": "x-1"}', 'payload': '{"a": 1}',
         'creation_time': '1782900000000'}, [],
        {'topic': 'orders', 'key': '7', 'payload': {'a': 1}, 'headers': {'PARTITION_ID': '7', 'ID': 'x-1'},
         'created_at': '2026-07-01 10:00:00+00'}, 'published = 0'),
    'namastack': (
        '''CREATE TABLE outbox_record (id varchar(255) PRIMARY KEY, status varchar(20) NOT NULL, record_key varchar(255) NOT NULL,
        record_type varchar(255) NOT NULL, payload text NOT NULL, context text, partition_no int NOT NULL, created_at timestamptz NOT
        NULL DEFAULT now(), completed_at timestamptz, failure_count int NOT NULL DEFAULT 0, failure_reason varchar(1000), next_retry_at
        timestamptz NOT NULL DEFAULT now(), handler_id varchar(1000) NOT NULL)''', 'outbox_record',
        {'id': ID, 'status': 'NEW', 'record_key': '7', 'record_type': 'OrderCreated', 'payload': '{"a": 1}', 'partition_no': '3',
         'handler_id': 'h'}, [], {'id': ID, 'topic': 'OrderCreated', 'key': '7', 'payload': {'a': 1}}, "status <> 'COMPLETED'"),
    'pg-transactional-outbox': (
        '''CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, message_type text NOT
        NULL, segment text, concurrency text NOT NULL DEFAULT 'sequential', payload jsonb NOT NULL, metadata jsonb, locked_until
        timestamptz NOT NULL DEFAULT to_timestamp(0), created_at timestamptz NOT NULL DEFAULT clock_timestamp(), processed_at
        timestamptz, abandoned_at timestamptz, started_attempts smallint NOT NULL DEFAULT 0, finished_attempts smallint NOT NULL
        DEFAULT 0)''', 'outbox',
        {'id': ID, 'aggregate_type': 'order', 'aggregate_id': '7', 'message_type': 'created', 'payload': '{"a": 1}',
         'metadata': '{"x": {"y": 1}}'}, [],
        {'id': ID, 'topic': 'order.created', 'key': '7', 'payload': {'a': 1}, 'headers': {'x': '{"y": 1}'}}, 'processed_at IS NULL'),
    'seed 000': (
        '''CREATE TABLE modkit_outbox_events (id uuid PRIMARY KEY, namespace text NOT NULL, topic text NOT NULL, tenant_id uuid, payload
        jsonb NOT NULL, status text NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 0, next_attempt_at timestamptz NOT NULL
        DEFAULT now(), locked_by text, locked_until timestamptz, last_error text, dedupe_key text, created_at timestamptz NOT NULL
        DEFAULT now())''', 'modkit_outbox_events',
        {'id': ID, 'namespace': 'billing', 'topic': 'order.created', 'tenant_id': ID, 'payload': '{"a": 1}', 'dedupe_key': 'd'},
        [],
        {'id': ID, 'namespace': 'billing', 'topic': 'order.created', 'tenant_id': ID, 'dedupe_key': f'{ID}/d'}, "status <> 'delivered'"),
    'seed 001': (
        '''CREATE TABLE outbox (id uuid PRIMARY KEY, topic text NOT NULL, key text, payload_json jsonb NOT NULL, idempotency_key text,
        status text NOT NULL DEFAULT 'pending', retry_count int NOT NULL DEFAULT 0, last_error text, last_attempt_at timestamptz,
        next_attempt_at timestamptz, published_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
        UNIQUE (topic, idempotency_key))''', 'outbox',
        {'id': ID, 'topic': 'order.created', 'key': '7', 'payload_json': '{"a": 1}', 'idempotency_key': 'd'},
        [],
        {'id': ID, 'topic': 'order.created', 'key': '7', 'payload': {'a': 1}, 'dedupe_key': 'd'},
        "status <> 'published' OR published_at IS NULL"),
    'seed 002': (
        '''CREATE TABLE "OutboxMessages" ("Id" uuid PRIMARY KEY, "EventType" text NOT NULL, "Payload" text NOT NULL, "TenantId" uuid,
        "CreatedAt" timestamptz NOT NULL DEFAULT now(), "IsProcessed" boolean NOT NULL DEFAULT false, "ProcessedAt" timestamptz,
        "RetryCount" int NOT NULL DEFAULT 0, "Error" text)''', 'OutboxMessages',
        {'Id': ID, 'EventType': 'OrderCreated', 'Payload': '{"a": 1}', 'TenantId': ID}, [],
        {'id': ID, 'topic': 'OrderCreated', 'payload': {'a': 1}, 'tenant_id': ID}, 'NOT "IsProcessed" OR "ProcessedAt" IS NULL'),
    'seed 003': (
        '''CREATE TABLE outbox (id bigserial PRIMARY KEY, event_id uuid UNIQUE NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
        correlation_id uuid, tenant_id text, created_at timestamptz NOT NULL DEFAULT now(), delivered_at timestamptz)''', 'outbox',
        {'event_id': ID, 'event_type': 'order.created', 'payload': '{"a": 1}', 'correlation_id': ID, 'tenant_id': 'acme'}, [],
        {'id': ID, 'topic': 'order.created', 'payload': {'a': 1}, 'correlation_id': ID, 'headers': {'tenant_id': 'acme'}},
        'delivered_at IS NULL'),
    '.NET tutorial': (
        '''CREATE TABLE "OutboxMessages" ("Id" uuid PRIMARY KEY, "Type" text NOT NULL, "Content" text NOT NULL, "OccurredOnUtc" timestamptz
        NOT NULL DEFAULT now(), "ProcessedOnUtc" timestamptz, "Error" text)''', 'OutboxMessages',
        {'Id': ID, 'Type': 'OrderCreated', 'Content': '{"a": 1}'}, [], {'id': ID, 'topic': 'OrderCreated', 'payload': {'a': 1}},
        '"ProcessedOnUtc" IS NULL'),
    'open-outbox': (
        '''CREATE TABLE openoutbox_events (event_id uuid PRIMARY KEY, event_type text NOT NULL, partition_key text, payload jsonb NOT NULL,
        headers jsonb, status text NOT NULL DEFAULT 'PENDING', attempts int NOT NULL DEFAULT 0, available_at timestamptz NOT NULL DEFAULT
        now(), locked_by text, locked_at timestamptz, delivered_at timestamptz, last_error text, created_at timestamptz NOT NULL DEFAULT
        now())''', 'openoutbox_events',
        {'event_id': ID, 'event_type': 'order.created', 'partition_key': '7', 'payload': '{"a": 1}', 'headers': '{"x": "y"}'},
        [],
        {'id': ID, 'topic': 'order.created', 'key': '7', 'payload': {'a': 1}, 'headers': {'x': 'y'}}, "status <> 'DELIVERED'"),
    'spring-modulith': (
        '''CREATE TABLE event_publication (id uuid PRIMARY KEY, listener_id text NOT NULL, event_type text NOT NULL, serialized_event text NOT
        NULL, publication_date timestamptz NOT NULL, completion_date timestamptz, status text, completion_attempts int,
        last_resubmission_date timestamptz)''', 'event_publication',
        {'id': ID, 'listener_id': 'org.springframework.modulith.events.support.DelegatingEventExternalizer.externalize(java.lang.Object)',
         'event_type': 'com.shop.OrderCreated', 'serialized_event': '{"a": 1}', 'publication_date': '2026-07-01 10:00+00', 'status': 'PUBLISHED'}, [],
        {'id': ID, 'topic': 'com.shop.OrderCreated', 'payload': {'a': 1}, 'created_at': '2026-07-01 10:00:00+00'},
        "status <> 'COMPLETED' OR completion_date IS NULL"),
    'spring-modulith 1': (
        '''CREATE TABLE event_publication (id uuid PRIMARY KEY, listener_id text NOT NULL, event_type text NOT NULL, serialized_event text NOT
        NULL, publication_date timestamptz NOT NULL, completion_date timestamptz)''', 'event_publication',
        {'id': ID, 'listener_id': 'a.DelegatingEventExternalizer.externalize(b)', 'event_type': 'com.shop.OrderCreated',
         'serialized_event': '{"a": 1}', 'publication_date': '2026-07-01 10:00+00'}, [],
        {'id': ID, 'topic': 'com.shop.OrderCreated', 'payload': {'a': 1}}, 'completion_date IS NULL'),
    'sbmt-outbox': (
        '''CREATE TABLE order_outbox_items (id bigserial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, event_name varchar NOT NULL, event_key varchar
        NOT NULL, bucket bigint NOT NULL, status int NOT NULL DEFAULT 0, options jsonb, payload bytea NOT NULL, errors_count int NOT NULL
        DEFAULT 0, error_log text, processed_at timestamp, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL)''',
        'order_outbox_items',
        {'uuid': ID, 'event_name': 'order_created', 'event_key': '7', 'bucket': '1', 'options': '{"headers": {"x": "y"}}', 'payload': '\\xff00',
         'created_at': '2026-07-01 10:00', 'updated_at': '2026-07-01 10:00'}, [],
        {'id': ID, 'topic': 'order_created', 'key': '7', 'body': '\\xff00', 'headers': {'x': 'y'}, 'created_at': '2026-07-01 10:00:00+00'},
        'status <> 2 OR processed_at IS NULL'),
    'rails-outbox': (
        '''CREATE TABLE outboxes (id bigserial PRIMARY KEY, identifier uuid NOT NULL UNIQUE, event varchar NOT NULL, payload jsonb, aggregate
        varchar NOT NULL, aggregate_identifier uuid NOT NULL, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL)''', 'outboxes',
        {'identifier': ID, 'event': 'order_created', 'payload': '{"a": 1}', 'aggregate': 'Order', 'aggregate_identifier': ID,
         'created_at': '2026-07-01 10:00', 'updated_at': '2026-07-01 10:00'}, [],
        {'id': ID, 'topic': 'order_created', 'key': ID, 'payload': {'a': 1}, 'headers': {'aggregate': 'Order'}}, None),
    'django-jaiminho': (
        '''CREATE TABLE jaiminho_event (id bigserial PRIMARY KEY, type varchar(64), action varchar(64), payload jsonb, encoder varchar(255),
        function_signature varchar(255), options varchar(255), created_at timestamptz NOT NULL DEFAULT now(), sent_at timestamptz)''',
        'jaiminho_event', {'type': 'order', 'action': 'created', 'payload': '{"a": 1}'}, [],
        {'topic': 'order.created', 'payload': {'a': 1}}, 'sent_at IS NULL'),
    'oagudo-outbox': (
        '''CREATE TABLE outbox (id uuid PRIMARY KEY, created_at timestamptz NOT NULL, scheduled_at timestamptz NOT NULL, metadata bytea, payload
        bytea NOT NULL, times_attempted int NOT NULL DEFAULT 0)''', 'outbox',
        {'id': ID, 'created_at': '2026-07-01 10:00+00', 'scheduled_at': '2026-07-01 10:00+00', 'payload': '\\xff00'}, ['--column', "topic='orders'"],
        {'id': ID, 'topic': 'orders', 'body': '\\xff00'}, 'true'),
    'pgx-outbox': (
        '''CREATE TABLE outbox_messages (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, broker text NOT NULL, topic text NOT NULL, metadata
        jsonb, payload jsonb NOT NULL, created_at timestamp NOT NULL DEFAULT now(), published_at timestamp)''', 'outbox_messages',
        {'broker': 'kafka', 'topic': 'orders', 'payload': '{"a": 1}', 'metadata': '{"x": "y"}'}, ['--time-zone', 'UTC'],
        {'topic': 'orders', 'payload': {'a': 1}, 'headers': {'x': 'y'}}, 'published_at IS NULL'),
}
# The others are recognized by the dictionary.
PRESETS = {'debezium', 'brighter', 'cap', 'watermill', 'django-outbox-pattern', 'eventuate', 'namastack', 'pg-transactional-outbox',
           'open-outbox', 'spring-modulith', 'sbmt-outbox', 'rails-outbox', 'django-jaiminho', 'oagudo-outbox'}
OF_SEEDS = {'seed 000': 'modkit', 'seed 001': 'kafka-worker', 'seed 003': 'redis-relay', 'spring-modulith 1': 'spring-modulith'}


def insert(sql, table, row):  # noqa: F811
    name = '.'.join(f'"{part}"' for part in table.split('.'))
    columns = ', '.join(f'"{column}"' for column in row)
    sql(f'INSERT INTO {name} ({columns}) VALUES ({", ".join(["%s"] * len(row))})', *row.values())
    return name


@pytest.mark.parametrize('when', ['waiting', 'new'])
@pytest.mark.parametrize('layout', LAYOUTS)
def U2_row_of_a_known_layout_is_delivered(postroom, sql, layout, when):  # noqa: F811
    ddl, table, row, options, expected, still_open = LAYOUTS[layout]
    if still_open is None and when == 'waiting':
        pytest.skip('rows that are never marked have no backlog')
    for statement in ddl.split(';'):
        sql(statement)
    if when == 'waiting':
        insert(sql, table, row)
    shown = postroom.ok('adopt', table, '--dry-run', *options).out
    assert ('there are no rows yet' in shown) == (when == 'new') and 'would be rejected' not in shown, shown
    postroom.ok('adopt', table, '--yes', *options)
    if when == 'new':
        insert(sql, table, row)
    names = ', '.join(f"{'created_at::text' if name == 'created_at' else name}" for name in expected)
    (found, ), = sql(f"SELECT to_jsonb(o) FROM (SELECT {names} FROM postroom_outbox) AS o")
    assert found == expected
    if still_open:
        name = '.'.join(f'"{part}"' for part in table.split('.'))
        assert sql(f'SELECT count(*) FROM {name} WHERE {still_open}') == [(0,)]
    assert sql('SELECT preset FROM postroom_adopted') == [(OF_SEEDS.get(layout, layout if layout in PRESETS else None),)]
    # The mapping of a second run is the recorded one.
    postroom.ok('adopt', table, '--yes')
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]


@pytest.mark.parametrize('layout', [name for name in LAYOUTS if LAYOUTS[name][5] is None])
def U2_rows_that_are_never_marked_are_shown_as_they_would_be_delivered(postroom, sql, layout):  # noqa: F811
    ddl, table, row, options, expected, _ = LAYOUTS[layout]
    sql(ddl)
    insert(sql, table, row)
    shown = [line for line in postroom.ok('adopt', table, '--dry-run', *options).lines if line.startswith('-- {')]
    assert [json.loads(line[3:])['topic'] for line in shown] == [expected['topic']]


REFUSED = {
    'MassTransit': '''CREATE TABLE t ("SequenceNumber" bigserial PRIMARY KEY, "MessageId" uuid, "DestinationAddress" text, "Body" text)''',
    'Wolverine': '''CREATE TABLE t (id uuid PRIMARY KEY, owner_id int NOT NULL, destination varchar NOT NULL, deliver_by timestamptz, body
        bytea NOT NULL, attempts int DEFAULT 0, message_type varchar NOT NULL)''',
    'NServiceBus': '''CREATE TABLE t ("MessageId" varchar(200) PRIMARY KEY, "Dispatched" boolean NOT NULL DEFAULT false, "DispatchedAt"
        timestamp, "PersistenceVersion" varchar(23) NOT NULL, "Operations" jsonb NOT NULL)''',
    'gruelbox': '''CREATE TABLE t (id varchar(36) PRIMARY KEY, invocation text, nextattempttime timestamp, lastattempttime timestamp,
        attempts int, blocked boolean, version int, uniquerequestid varchar(250), processed boolean, topic varchar(250), seq bigint)''',
    'django-jaiminho': '''CREATE TABLE t (id bigserial PRIMARY KEY, message bytea, function bytea, kwargs bytea, strategy varchar(100), stream
        varchar(100), created_at timestamptz, sent_at timestamptz)''',
    'Axon': '''CREATE TABLE t (dead_letter_id varchar(255) PRIMARY KEY, cause_message varchar(1023), cause_type varchar(255), diagnostics bytea,
        enqueued_at timestamptz, event_identifier varchar(255), payload bytea, payload_type varchar(255), sequence_identifier varchar(255))''',
    'go-outbox': '''CREATE TABLE t (id varchar(100) PRIMARY KEY, data bytea NOT NULL, state int NOT NULL, created_on timestamptz, locked_by
        varchar(100), locked_on timestamptz, processed_on timestamptz, number_of_attempts int, last_attempted_on timestamptz, error text)''',
    'outbox-pattern-processor': '''CREATE TABLE t (idempotent_key uuid PRIMARY KEY, partition_key uuid NOT NULL, destinations jsonb NOT NULL,
        headers jsonb, payload text NOT NULL, attempts int NOT NULL, created_at timestamptz NOT NULL, processing_until timestamptz NOT NULL,
        processed_at timestamptz)''',
}


@pytest.mark.parametrize('library', REFUSED)
def U2_opaque_envelopes_are_refused_with_the_way_that_works(postroom, sql, library):  # noqa: F811
    sql(REFUSED[library])
    complaint = postroom.fails(1, 'adopt', 't', '--yes')
    assert library in complaint and 'insert into postroom_outbox' in complaint


def U2_rows_of_other_listeners_are_left_alone(postroom, sql):  # noqa: F811
    ddl, table, row, *_ = LAYOUTS['spring-modulith']
    sql(ddl)
    other = {**row, 'id': ID.replace('1', '2'), 'listener_id': 'com.shop.Inventory.on(com.shop.OrderCreated)'}
    insert(sql, table, other)
    postroom.ok('adopt', table, '--yes')
    insert(sql, table, {**other, 'id': ID.replace('1', '3')})
    insert(sql, table, row)
    assert sql('SELECT id::text FROM postroom_outbox') == [(ID,)]
    assert sql("SELECT count(*) FROM event_publication WHERE status = 'PUBLISHED'") == [(2,)]
    assert postroom.ok('adopt', table, '--status', '--json').object['other'] == 0


def U2_some_rows_can_be_adopted_by_a_column(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'mine', '{}'), ('a', 'theirs', '{}')")
    postroom.ok('adopt', 'outbox', '--yes', '--column', 'only=key:mine,ours', *MAPPING)
    sql("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'ours', '{}'), ('a', 'theirs', '{}'), ('a', NULL, '{}')")
    assert sql('SELECT key FROM postroom_outbox ORDER BY seq') == [('mine',), ('ours',)]
    sql('CREATE TABLE other (id int PRIMARY KEY, topic text, payload jsonb, sent_at timestamptz)')
    assert 'COLUMN:VALUE' in postroom.fails(1, 'adopt', 'other', '--yes', '--column', 'only=topic')


def U2_dry_run_prints_undelivered_columns_and_the_cost(postroom, sql):  # noqa: F811
    sql(LAYOUT.replace('key text', 'key text, retries int, "tenant_id" text, last_error text'))
    shown = postroom.ok('adopt', 'outbox', '--dry-run', *MAPPING).lines
    assert '-- not delivered    retries, tenant_id, last_error' in shown
    assert any('tenant_id is not of the type uuid' in line for line in shown)
    assert '-- cost: not measured: no row of the table can be mirrored yet' in shown
    sql("INSERT INTO outbox (topic, payload) SELECT 'a', '{}' FROM generate_series(1, 50)")
    sql("CREATE INDEX ON outbox (status) WHERE status = 'pending'")
    before = sql('SELECT count(*) FROM pg_class'), sql('SELECT last_value FROM postroom_outbox_seq_seq')
    shown = postroom.ok('adopt', 'outbox', '--dry-run', *MAPPING).out
    assert re.search(r'-- cost: INSERT of one row: \d+ us, mirrored \d+ us\n'
                     r'-- cost: INSERT of many rows: [\d.]+ us per row, mirrored [\d.]+ us \([\d.]+ times\)\n', shown), shown
    assert before == (sql('SELECT count(*) FROM pg_class'), sql('SELECT last_value FROM postroom_outbox_seq_seq'))
    assert sql('SELECT count(*) FROM postroom_outbox') == [(0,)] and sql("SELECT count(*) FROM outbox WHERE status = 'pending'") == [(50,)]


def U2_dry_run_is_sql_that_a_migration_linter_accepts(postroom, sql, tmp_path):  # noqa: F811
    linter = find_linter()
    sql(LAYOUT)
    script = tmp_path / 'adopt.sql'
    script.write_text(postroom.ok('adopt', 'outbox', '--dry-run', *MAPPING).out)
    found = subprocess.run([linter, script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def U2_column_that_cannot_be_set_is_never_the_marker(postroom, sql):  # noqa: F811
    sql("""CREATE TABLE outbox (id int PRIMARY KEY, topic text, payload jsonb, sent_at timestamptz NOT NULL DEFAULT 'epoch', processed_at
        timestamptz, processed boolean GENERATED ALWAYS AS (processed_at IS NOT NULL) STORED)""")
    postroom.ok('adopt', 'outbox', '--yes')
    sql("INSERT INTO outbox VALUES (1, 'a', '{}')")
    assert sql('SELECT processed, (SELECT count(*) FROM postroom_outbox) FROM outbox') == [(True, 1)]
    assert postroom.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1


def U2_domain_of_a_domain_is_read_as_its_base_type(postroom, sql):  # noqa: F811
    sql('CREATE DOMAIN instant AS timestamptz')
    sql('CREATE DOMAIN past AS instant')
    sql("CREATE TYPE state AS ENUM ('fresh', 'sent')")
    sql('CREATE DOMAIN known_state AS state')
    sql('CREATE DOMAIN status AS known_state')
    sql("CREATE TABLE outbox (id int PRIMARY KEY, topic text, payload jsonb, created_at past, status status DEFAULT 'fresh')")
    sql("INSERT INTO outbox VALUES (1, 'a', '{}', '2026-07-01T10:00:00Z')")
    postroom.ok('adopt', 'outbox', '--yes')
    assert sql("SELECT extract(epoch FROM created_at)::bigint FROM postroom_outbox") == [(1782900000,)]
    assert sql('SELECT status::text FROM outbox') == [('sent',)]


def U2_bytes_are_names_of_a_message(postroom, place, database, sql):  # noqa: F811
    """UUIDs, or hex digits. The session of a producer may print bytes in another way than that of adopt."""
    sql('CREATE TABLE outbox (id bytea PRIMARY KEY, topic text, aggregate bytea, payload jsonb, processed_at timestamptz)')
    postroom.ok('adopt', 'outbox', '--yes', '--column', 'key=aggregate')
    uuid = '11111111-2222-4333-8444-555555555555'
    place.sql(database, "INSERT INTO outbox VALUES (decode(replace(%s, '-', ''), 'hex'), 'a', decode(replace(%s, '-', ''), 'hex'), '{}'), "
              "('\\x00ff', 'b', '\\x00ff', '{}')", uuid, uuid, options='-c bytea_output=escape')
    assert sql('SELECT key FROM postroom_outbox ORDER BY topic') == [(uuid,), ('00ff',)]
    assert sql("SELECT id::text FROM postroom_outbox WHERE topic = 'a'") == [(uuid,)]
    assert postroom.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 2
