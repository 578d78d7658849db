// SPDX-License-Identifier: Apache-2.0
// An imitation of the admin server, with invented data: to work on the page without a relay, and
// for screenshots of states that take a relay hours to reach.
//   node mock.mjs [PORT [SCENE]]     scenes: busy (default), calm, empty, huge, long
// POST /mock {…} changes what it does: token, read_only, show_payloads, delay, fail.
import { createServer } from 'node:http';
import { createHash } from 'node:crypto';
import { readFileSync, existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('../../src/admin/page/', import.meta.url));
const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const CAP = 100000;

let seed = 42;
function random() {
	seed = (seed * 1103515245 + 12345) % 2147483648;
	return seed / 2147483648;
}
const pick = (list) => list[Math.floor(random() * list.length)];
const uuid = (text) => {
	const hex = createHash('sha256').update(text).digest('hex');
	return `0199${hex.slice(0, 4)}-${hex.slice(4, 8)}-7${hex.slice(8, 11)}-a${hex.slice(12, 15)}-${hex.slice(16, 28)}`;
};
const iso = (ms) => new Date(ms).toISOString().replace('Z', '000Z');

const START = Date.now();
const TOPICS = ['orders.created', 'orders.paid', 'orders.shipped', 'payments.captured', 'invoices.issued', 'customers.changed', 'stock.reserved'];
const ERRORS = [
	['HTTP 422: {"error":"unknown currency","order":N}', 0.5],
	['HTTP 503: upstream connect error or disconnect/reset before headers, reset reason: connection timeout', 0.25],
	['kafka: message of 1048N bytes is larger than max.message.bytes; raise it or send less', 0.12],
	['exec: exit 1: customer UUID has no address: cannot write the label', 0.08],
	['HTTP 400: schema validation failed at /lines/N/price: expected number, found string "12,50"', 0.05],
];

function errorText(n) {
	let at = random();
	for (const [text, share] of ERRORS) {
		at -= share;
		if (at < 0) return text.replace(/N/g, () => String(Math.floor(random() * 90000) + 100)).replace('UUID', uuid(`customer${n}`));
	}
	return ERRORS[0][0];
}

function fingerprint(error) {
	if (error === null) return '';
	return [...error.replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, '<uuid>')
		.replace(/0x[0-9a-f]+/gi, '<hex>').replace(/[0-9]+/g, '<n>')].slice(0, 200).join('');
}

const state = { token: null, read_only: false, show_payloads: true, delay: 0, fail: 0, doctor: true, requests: 0 };
const scene = { outbox: [], inbox: [], extra: {}, history: true, sinks: null };

function message(n, given = {}) {
	const created = given.created ?? START - n * 850;
	const error = given.error ?? null;
	return {
		id: uuid(`message${n}`), seq: 1000000 - n, namespace: 'default', topic: pick(TOPICS), tenant_id: null,
		key: `o-${48213 - n}`, dedupe_key: null, correlation_id: random() < 0.3 ? uuid(`c${n}`).slice(0, 18) : null,
		content_type: 'application/json', status: 'pending', attempts: 0, claims: 0,
		next_attempt_at: iso(created), locked_by: null, locked_until: null, last_attempt_at: null, last_error: error,
		created_at: iso(created), updated_at: iso(created), delivered_at: null,
		headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'x-source': 'checkout' },
		payload_text: `{"order":9007199254740993,"customer":{"id":"c-${n}","name":"Jörg Müller"},"lines":[{"sku":"A-${n % 97}","quantity":2,"price":1.10},{"sku":"B-7","quantity":1,"price":24.00}],"total":26.20,"currency":"EUR","note":"${'leave at the door; '.repeat(1 + n % 3)}"}`,
		body_base64: null, attempts_log: [], ...given.row,
	};
}

function attempts(row, howMany, error, until) {
	let at = until - 2000 * (2 ** Math.min(howMany, 10) - 1);
	const log = [];
	for (let n = 1; n <= howMany; n++) {
		log.push({ number: n, at: iso(at), duration_ms: 20 + Math.floor(random() * 4000), worker: uuid('worker1'), sink: 'hooks', error });
		at += 2000 * 2 ** (n - 1);
	}
	row.attempts_log = log.slice(-10);
	row.created_at = iso(Math.min(Date.parse(row.created_at), Date.parse(log[0].at) - 150));
	row.last_attempt_at = log[howMany - 1].at;
	row.attempts = howMany;
	row.claims = howMany;
}

function fill(size, deadShare, retryShare) {
	for (let n = 1; n <= size; n++) {
		const row = message(n);
		const created = Date.parse(row.created_at);
		const kind = random();
		if (n <= 18) {
			Object.assign(row, { status: 'processing', locked_by: uuid(`worker${n % 4}`), locked_until: iso(START + 24000), attempts: 1, claims: 1 });
		} else if (kind < deadShare) {
			row.last_error = errorText(n);
			row.topic = row.last_error.startsWith('exec') ? 'customers.changed' : row.last_error.startsWith('kafka') ? 'invoices.issued' : row.topic;
			row.status = 'dead';
			attempts(row, 10, row.last_error, Math.min(created + 1800000, START - 5000));
			if (random() < 0.6) attempts(row, 1, row.last_error, created + 500);
			row.updated_at = row.last_attempt_at;
		} else if (kind < deadShare + retryShare) {
			row.last_error = 'HTTP 503: upstream connect error or disconnect/reset before headers, reset reason: connection timeout';
			row.topic = 'payments.captured';
			attempts(row, 1 + Math.floor(random() * 5), row.last_error, START - 3000);
			row.next_attempt_at = iso(START + random() * 120000);
		} else if (n > 60) {
			Object.assign(row, { status: 'delivered', attempts: 1, claims: 1, delivered_at: iso(created + 40 + random() * 900) });
			row.attempts_log = [{ number: 1, at: iso(created + 30), duration_ms: 31, worker: uuid('worker1'), sink: 'bus', error: null }];
		} else if (n % 9 === 0) {
			row.next_attempt_at = iso(START + 3600000 * n / 9);
		}
		scene.outbox.push(row);
	}
}

function fillInbox(size) {
	for (let n = 1; n <= size; n++) {
		const created = START - n * 4100;
		const row = message(n, { created });
		for (const name of ['seq', 'namespace', 'dedupe_key', 'delivered_at']) delete row[name];
		Object.assign(row, { id: `evt-${88000 - n}`, handler: pick(['rewards', 'mail', 'import-catalog']), checkpoint: null, steps: {}, processed_at: null });
		if (n % 13 === 0) {
			Object.assign(row, { status: 'dead', last_error: `SMTP 550: mailbox ${n} unavailable`, attempts: 5, claims: 5, handler: 'mail' });
		} else if (n > 12) {
			Object.assign(row, { status: 'completed', attempts: 1, claims: 1, processed_at: iso(created + 300) });
		} else if (n < 4) {
			Object.assign(row, { status: 'active', locked_by: uuid('worker9'), locked_until: iso(START + 20000), attempts: 1 });
		}
		if (row.handler === 'import-catalog') {
			row.steps = { fetch: { result: '4,812 rows', at: iso(created + 900) }, parse: { result: '', at: iso(created + 2100) } };
			row.checkpoint_text = '{"page":37,"cursor":9007199254740993,"seen":[1.10,2.0]}';
		}
		scene.inbox.push(row);
	}
}

function history() {
	const samples = [];
	if (!scene.history) return samples;
	const now = Math.floor(Date.now() / 5000) * 5000;
	for (let at = now - 895000; at <= now; at += 5000) {
		const wave = 520 + 180 * Math.sin(at / 240000) + 60 * Math.sin(at / 31000) + 35 * Math.sin(at / 7000);
		const minutes = (Date.now() - at) / 60000;
		const isDown = scene.outage && minutes < 4.2 && minutes > 0;
		const perSecond = isDown ? wave * 0.62 : wave;
		samples.push({ at: iso(at), delivered: Math.round(perSecond * 5), failed: isDown ? Math.round(40 + 25 * Math.abs(Math.sin(at / 9000))) : Math.sin(at / 90000) > 0.97 ? 9 : 0,
			p50_seconds: 0.009 + 0.003 * Math.sin(at / 60000) + (isDown ? 0.004 : 0), p99_seconds: 0.052 + 0.02 * Math.sin(at / 43000) + 0.006 * Math.sin(at / 5000) + (isDown ? 0.06 : 0) });
	}
	return samples;
}

function counts(rows) {
	const by = (status) => rows.filter((row) => row.status === status).length;
	return { pending: by('pending'), processing: by('processing'), active: by('active'), delivered: by('delivered'), completed: by('completed'), dead: by('dead') };
}

function stats() {
	const by = counts(scene.outbox);
	const inbox = counts(scene.inbox);
	const failed = scene.outbox.filter((row) => row.status === 'pending' && row.attempts > 0).length;
	const scheduled = scene.outbox.filter((row) => row.status === 'pending' && !row.attempts && Date.parse(row.next_attempt_at) > Date.now()).length;
	const reasons = [];
	if (scene.outage) reasons.push({ component: 'sink', status: 'degraded', value: 1, threshold: 1, since: iso(START - 252000), message: 'the sink hooks is down: HTTP 503: upstream connect error or disconnect/reset before headers' });
	if (by.dead) reasons.push({ component: 'dead', status: 'degraded', value: by.dead, threshold: 1, since: iso(START - 3900000), message: `${by.dead} dead messages; the threshold is 1` });
	if (inbox.dead) reasons.push({ component: 'inbox', status: 'degraded', value: inbox.dead, threshold: 1, since: iso(START - 1740000), message: `${inbox.dead} dead messages in the inbox; the threshold is 1` });
	const rates = history();
	const rate = (samples, field) => rates.slice(-samples).reduce((sum, one) => sum + one[field], 0) / (samples * 5);
	const span = (samples) => ({ delivered_per_second: rates.length ? rate(samples, 'delivered') : 0, failed_per_second: rates.length ? rate(samples, 'failed') : 0, failure_ratio: 0 });
	return {
		pending: by.pending, processing: by.processing, failed_pending: failed, scheduled, due: by.pending - scheduled - failed, delivered: by.delivered, delivered_capped: false, dead: by.dead,
		backlog: by.pending + by.processing, capped: false, oldest_age_seconds: by.pending ? (Date.now() - START) / 1000 + 221 : 0, collected_at: iso(Date.now()),
		status: reasons.length ? 'degraded' : 'healthy', reasons, rates: { '1m': span(12), '5m': span(60), '15m': span(180) }, history: rates,
		read_only: state.read_only, show_payloads: state.show_payloads, version: '0.2.0', database: 'postgres',
		inbox: { pending: inbox.pending, active: inbox.active, completed: inbox.completed, completed_capped: false, dead: inbox.dead }, ...scene.extra,
	};
}

function topics() {
	const items = new Map();
	for (const row of scene.outbox) {
		const name = `${row.namespace}/${row.topic}`;
		if (!items.has(name)) items.set(name, { namespace: row.namespace, topic: row.topic, pending: 0, processing: 0, failed_pending: 0, dead: 0, oldest_age_seconds: null, last_error: null, last_error_at: null });
		const item = items.get(name);
		if (row.last_error) Object.assign(item, { last_error: row.last_error, last_error_at: row.updated_at });
		if (row.status in item) item[row.status]++;
		if (row.status === 'pending') item.oldest_age_seconds = Math.max(item.oldest_age_seconds || 0, (Date.now() - Date.parse(row.created_at)) / 1000);
		if (row.status === 'pending' && row.attempts) item.failed_pending++;
	}
	return { items: [...items.values()].sort((a, b) => (a.topic < b.topic ? -1 : 1)), capped: Boolean(scene.extra.capped) };
}

function sinks() {
	if (scene.sinks) return { items: scene.sinks };
	return { items: [
		{ name: 'bus', url: 'kafka://kafka-1:9092,kafka-2:9092/{topic}', breaker: 'closed', open_since: null, last_error: null, last_error_at: null, last_delivery_at: iso(Date.now() - 120), in_flight: 14, delivered: 4812377, failed: 12 },
		scene.outage ? { name: 'hooks', url: 'https://hooks.example.test/v2/events?secret=***', breaker: 'open', open_since: iso(START - 252000), last_error: 'HTTP 503: upstream connect error or disconnect/reset before headers, reset reason: connection timeout', last_error_at: iso(Date.now() - 3100), last_delivery_at: iso(START - 251000), in_flight: 1, delivered: 88214, failed: 3190 }
			: { name: 'hooks', url: 'https://hooks.example.test/v2/events?secret=***', breaker: 'closed', open_since: null, last_error: null, last_error_at: null, last_delivery_at: iso(Date.now() - 2100), in_flight: 2, delivered: 88214, failed: 0 },
		{ name: 'labels', url: 'exec:/usr/local/bin/print-label', breaker: 'closed', open_since: null, last_error: scene.outage ? 'exit 1: customer has no address' : null, last_error_at: scene.outage ? iso(START - 5400000) : null, last_delivery_at: iso(START - 61000), in_flight: 0, delivered: 1204, failed: scene.outage ? 7 : 0 },
	] };
}

function workers() {
	const items = [['bus', 'publishing', 9], ['bus', 'publishing', 5], ['hooks', 'claiming', 1], ['labels', 'idle', 0]];
	return {
		items: items.map(([sink, text, in_flight], n) => ({ worker: uuid(`worker${n}`), sink, state: text, in_flight, since: iso(START - 8000 * (n + 1)) })),
		leases: [[0, 9, 3], [1, 5, 2], [2, 4, 0], [7, 120, 16]].map(([n, messages, lanes]) => ({ worker: uuid(`worker${n}`), table: 'outbox', messages, lanes, locked_until: iso(Date.now() + 21000 - n * 900) })),
	};
}

function doctor() {
	return { items: [
		{ check: 'D02', level: 'problem', title: 'A transaction holds back vacuum', detail: 'Session 4711 (analytics, idle in transaction) has been open for 3 h 12 min. 1,204,331 dead rows cannot be removed.', advice: 'End it, and set idle_in_transaction_session_timeout for this role.', command: 'SELECT pg_terminate_backend(4711);' },
		{ check: 'D07', level: 'warning', title: 'The outbox is bloated', detail: 'postroom_outbox has 61 % dead rows (412 MiB).', advice: 'It is vacuumed when the session above has ended.', command: null },
		{ check: 'D11', level: 'note', title: 'Statistics are old', detail: 'The last ANALYZE ran 9 days ago.', advice: null, command: 'ANALYZE postroom_outbox;' },
		{ check: 'D03', level: 'skipped', title: 'Sessions of other roles', detail: 'Skipped: this role may not see them.', advice: 'GRANT pg_read_all_stats TO postroom;', command: null },
		...['Schema version', 'Indexes', 'Privileges', 'Clock', 'Sinks', 'Leases'].map((title, n) => ({ check: `D${20 + n}`, level: 'ok', title, detail: null, advice: null, command: null })),
	] };
}

const sinkOf = (row) => (row.handler ? '<none>' : 'hooks');

function matches(filter) {
	const pattern = filter.topic && new RegExp(`^${filter.topic.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replace(/\*/g, '.*')}$`, 's');
	return (row) => (!filter.status || (filter.status === 'failed' ? row.status === 'pending' && row.attempts > 0 : row.status === filter.status)) &&
		(!pattern || pattern.test(row.topic)) && (!filter.namespace || row.namespace === filter.namespace) && (!filter.tenant || row.tenant_id === filter.tenant) &&
		(!filter.key || row.key === filter.key) && (!filter.id || row.id === filter.id) && (!filter.handler || row.handler === filter.handler) &&
		(!filter.error || (row.last_error || '').toLowerCase().includes(filter.error.toLowerCase())) &&
		(!filter.fingerprint || fingerprint(row.last_error) === filter.fingerprint) && (!filter.sink || sinkOf(row) === filter.sink) &&
		(!filter.created_from || Date.parse(row.created_at) >= Date.parse(filter.created_from)) &&
		(!filter.created_to || Date.parse(row.created_at) < Date.parse(filter.created_to));
}

function listed({ payload_text, body_base64, headers, attempts_log, checkpoint_text, ...row }) {
	return row;
}

function list(table, filter) {
	const found = scene[table].filter(matches(filter));
	const size = Number(filter.page_size) || 50;
	const start = filter.after ? found.findIndex((row) => (row.handler ? `${row.handler}/${row.id}` : row.id) === filter.after) + 1 : 0;
	const items = found.slice(start, start + size);
	const last = items[items.length - 1];
	const total = scene.extra.list_total ?? found.length;
	return { items: items.map(listed), page: 1, page_size: size, total: Math.min(total, CAP), total_capped: total > CAP,
		next_after: start + size < found.length ? (last.handler ? `${last.handler}/${last.id}` : last.id) : null };
}

function groups(table, filter) {
	const found = new Map();
	for (const row of scene[table].filter(matches({ ...filter, status: 'dead' }))) {
		const key = JSON.stringify([fingerprint(row.last_error), row.topic, row.handler, sinkOf(row)]);
		if (!found.has(key)) found.set(key, { fingerprint: fingerprint(row.last_error), example_error: row.last_error, topic: row.topic, handler: row.handler, sink: sinkOf(row), count: 0, first_at: row.updated_at, last_at: row.updated_at, example_id: row.id });
		const group = found.get(key);
		group.count++;
		if (row.updated_at < group.first_at) group.first_at = row.updated_at;
		if (row.updated_at > group.last_at) group.last_at = row.updated_at;
	}
	return { items: [...found.values()].sort((a, b) => b.count - a.count), capped: false };
}

function retryRow(row) {
	Object.assign(row, { status: 'pending', attempts: 0, next_attempt_at: iso(Date.now()), updated_at: iso(Date.now()) });
}

function bulk(table, action, { filter = {}, dry_run, limit = 10000 }) {
	const allowed = action === 'retry' ? ['dead'] : ['dead', 'delivered', 'completed'];
	const found = scene[table].filter(matches(filter)).filter((row) => allowed.includes(row.status));
	if (dry_run) return { matched: scene.extra.list_total ? CAP : found.length, done: 0, more: found.length > 0, examples: found.slice(0, 5).map((row) => row.id) };
	const part = new Set(found.slice(0, limit));
	if (action === 'retry') part.forEach(retryRow);
	else scene[table] = scene[table].filter((row) => !part.has(row));
	return { matched: found.length, done: part.size, more: found.length > part.size };
}

class Failure extends Error {
	constructor(status, code, text) {
		super(text);
		Object.assign(this, { status, code });
	}
}

function one(table, method, parts, action) {
	const [handler, id] = table === 'inbox' ? parts : [undefined, parts[0]];
	const row = scene[table].find((candidate) => candidate.id === id && candidate.handler === handler);
	if (!row) throw new Failure(404, 'not_found', 'No such message');
	if (method === 'POST' && action === 'retry') {
		if (row.status !== 'dead') throw new Failure(409, 'conflict', `The message is ${row.status}; only dead messages can be retried`);
		retryRow(row);
		return { id, status: row.status };
	}
	if (method === 'DELETE') {
		if (!['dead', 'delivered', 'completed'].includes(row.status)) throw new Failure(409, 'conflict', `The message is ${row.status}`);
		scene[table] = scene[table].filter((other) => other !== row);
		return { id, deleted: true };
	}
	const { checkpoint_text, ...shown } = row;
	const hidden = !state.show_payloads;
	const answer = { ...shown, payload_hidden: hidden };
	if (hidden) Object.assign(answer, { payload_text: null, body_base64: null });
	const json = JSON.stringify(answer);
	return { json: checkpoint_text ? json.replace('"checkpoint":null', () => `"checkpoint":${checkpoint_text}`) : json };
}

function route(method, url, body) {
	const query = Object.fromEntries(url.searchParams);
	const [resource, ...parts] = url.pathname.replace(/^.*\/api\/v1\//, '').split('/').map(decodeURIComponent);
	const simple = { stats, topics, sinks, workers, doctor }[resource];
	if (simple) {
		if (resource === 'doctor' && !state.doctor) throw new Failure(404, 'not_found', 'No such resource');
		return simple();
	}
	const [table, format] = resource.split('.');
	if (table !== 'outbox' && table !== 'inbox') throw new Failure(404, 'not_found', 'No such resource');
	if (method !== 'GET' && state.read_only) throw new Failure(403, 'read_only', 'This server is read-only');
	if (format) return { json: scene[table].filter(matches(query)).map((row) => JSON.stringify(listed(row))).join('\n') };
	if (!parts.length) return list(table, query);
	if (parts[0] === 'groups') return groups(table, query);
	if (method === 'POST' && parts.length === 1) return bulk(table, parts[0], body);
	const action = ['retry'].includes(parts[parts.length - 1]) && method === 'POST' ? parts.pop() : null;
	return one(table, method, parts, action);
}

// Every value as long as the server allows, or longer than anyone wants.
function lengthen() {
	const dotted = (text, length) => Array.from({ length }, () => text).join('.');
	for (const [n, row] of [...scene.outbox, ...scene.inbox].entries()) {
		row.topic = dotted(row.topic, 12);
		row.namespace = n % 3 ? 'default' : 'europe-west-production-tenant-shard-0017-blue';
		row.key = `customer/${uuid(`long${n}`)}/order/${uuid(`order${n}`)}/line/${'9'.repeat(60)}`;
		if (row.handler) row.handler = dotted(row.handler, 8);
		if (row.last_error) row.last_error = row.last_error.repeat(30);
		for (const attempt of row.attempts_log || []) attempt.error = row.last_error;
		row.dedupe_key = 'x'.repeat(200);
		row.tenant_id = uuid('tenant');
	}
	scene.sinks = ['warehouse-replication-europe-west-production', 'b'].map((name, n) => ({ name: name.repeat(2 - n), url: `https://${'hooks.'.repeat(20)}example.test/v2/${'events/'.repeat(20)}?secret=***`, breaker: n ? 'half-open' : 'open', open_since: iso(START - 9e8),
		last_error: `HTTP 503: ${'upstream connect error or disconnect/reset before headers; '.repeat(20)}`, last_error_at: iso(START - 3e6), last_delivery_at: iso(START - 9e8), in_flight: 1048576, delivered: 912345678901, failed: 123456789 }));
	scene.extra = { delivered: null, dead: CAP, capped: true };
}

export function serve(port, name = 'busy') {
	if (name === 'busy') {
		scene.outage = true;
		fill(6000, 0.08, 0.02);
		fillInbox(400);
	} else if (name === 'calm') {
		fill(3000, 0, 0);
		fillInbox(12);
		scene.inbox = scene.inbox.filter((row) => row.status !== 'dead');
	} else if (name === 'huge') {
		fill(500, 0.1, 0.1);
		scene.extra = { delivered: 10000, delivered_capped: true, collected_at: iso(START - 12000), pending: 100000, backlog: 100000, due: 100000, dead: 100000, failed_pending: 54321, capped: true, oldest_age_seconds: 1234567, list_total: 1000000, status: 'unhealthy',
			reasons: [{ component: 'backlog', status: 'degraded', since: null, message: '100000 undelivered messages; the threshold is 100000' }, { component: 'age', status: 'unhealthy', since: iso(START - 1233967000), message: 'the oldest due message is 1234567 s old; the threshold is 600 s' },
				{ component: 'dead', status: 'degraded', since: null, message: '100000 dead messages; the threshold is 1' }] };
	} else if (name === 'long') {
		scene.outage = true;
		fill(400, 0.3, 0.2);
		fillInbox(60);
		lengthen();
	} else {
		scene.history = false;
		scene.sinks = [];
		state.doctor = false;
	}
	const server = createServer((request, response) => {
		const chunks = [];
		request.on('data', (chunk) => chunks.push(chunk)).on('end', () => setTimeout(() => answer(request, response, Buffer.concat(chunks).toString()), request.url.includes('/api/') ? state.delay : 0));
	});
	server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`));
	return server;
}

function answer(request, response, text) {
	const url = new URL(request.url, 'http://localhost');
	const reply = (status, type, content) => response.writeHead(status, { 'Content-Type': type, 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store' }).end(content);
	if (url.pathname === '/mock') {
		Object.assign(state, JSON.parse(text || '{}'));
		return reply(200, 'application/json', JSON.stringify(state));
	}
	if (!url.pathname.includes('/api/')) {
		const name = url.pathname.endsWith('/') ? 'index.html' : url.pathname.split('/').pop();
		return existsSync(PAGE + name) ? reply(200, TYPES[name.split('.').pop()], readFileSync(PAGE + name)) : reply(404, 'text/plain', 'not found');
	}
	state.requests++;
	try {
		if (state.fail) throw new Failure(state.fail, 'failed', 'Asked to fail');
		if (state.token && request.headers.authorization !== `Bearer ${state.token}`) throw new Failure(401, 'unauthorized', 'A token is needed');
		const result = route(request.method, url, text ? JSON.parse(text) : {});
		return reply(200, 'application/json', result.json ?? JSON.stringify(result));
	} catch (error) {
		return reply(error.status || 500, 'application/json', JSON.stringify({ error: { code: error.code || 'internal', message: error.message } }));
	}
}

if (process.argv[1] === fileURLToPath(import.meta.url)) serve(Number(process.argv[2]) || 0, process.argv[3]);
