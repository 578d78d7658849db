// SPDX-License-Identifier: Apache-2.0
// One message: its life, its error, its payload as it was written.
import { actOnRow, bulk } from './bulk.js';
import { address, isReadOnly, messagePath, navigate, recall, remember, state, text } from './core.js';
import { h, icon } from './dom.js';
import { bytes, clock, count, indent, latency, members, plural, shorten, visible } from './format.js';
import { aside, button, card, copyIcon, copyText, download, effectiveStatus, empty, isFinished, leaseEnds, link, pair, statusPill, toast, value, when } from './parts.js';

const SHOWN = 65536; // characters of a payload or an error before "Show all"

// Created, due, each attempt, and how it ended or will go on: [tone, icon, title, time, details…].
function life(row) {
	const log = row.attempts_log || [];
	const status = effectiveStatus(row);
	const steps = [['neutral', 'circle', 'Created', row.created_at]];
	if (status === 'scheduled') steps.push(['neutral', 'clock', 'Scheduled for', row.next_attempt_at]);
	// A retry overwrites the time: of the first attempt it is known until then.
	else if (row.status !== 'pending' && row.attempts < 2 && Date.parse(row.next_attempt_at) > Date.parse(row.created_at) + 1000) steps.push(['neutral', 'clock', 'Due', row.next_attempt_at]);
	const missing = row.attempts - log.length;
	if (missing > 0 && log.length) steps.push(['neutral', 'retry', plural(missing, 'earlier attempt'), null, 'The log keeps the last ten.']);
	if (missing > 0 && !log.length && row.last_error) steps.push(['bad', 'cross', plural(missing, 'attempt'), row.last_attempt_at]);
	log.forEach(({ number, at, duration_ms: took, worker, sink, error }, index) => {
		const isAbove = error === row.last_error;
		const isRepeated = error && (isAbove || error === log[index - 1]?.error);
		steps.push([error ? 'bad' : 'ok', error ? 'cross' : 'check', `Attempt ${number}${error ? ' failed' : ''}`, at,
			h('span.faint', [sink && `to ${visible(sink)}`, took >= 0 && `took ${count(took)} ms`, worker && `worker ${visible(worker).slice(0, 8)}`, isRepeated && (isAbove ? 'the error above' : 'same error')].filter(Boolean).join(' · ')),
			error && !isRepeated && h('div.error-box', shorten(visible(error), 2000))]);
	});
	if (row.locked_until) steps.push(['accent', 'half', 'In flight', null, 'The lease of ', h('code', visible(row.locked_by)), leaseEnds(row), '.']);
	if (status === 'retrying' || status === 'pending') steps.push(['neutral', 'clock', row.attempts ? 'Next attempt' : 'Due', row.next_attempt_at]);
	if (status === 'delivered') steps.push(['ok', 'check', 'Delivered', row.delivered_at, h('span.faint', `${latency((Date.parse(row.delivered_at) - Date.parse(row.created_at)) / 1000)} after it was created`)]);
	if (status === 'completed') steps.push(['ok', 'check', 'Completed', row.processed_at]);
	if (status === 'dead') steps.push(['bad', 'cross', 'Dead', row.updated_at, `No longer retried after ${plural(row.attempts, 'attempt')}.`]);
	return steps;
}

const timeline = (row) => h('ol.timeline', life(row).map(([tone, iconName, title, time, ...details]) => h('li', { class: tone }, h('span.dot', icon(iconName)),
	h('div.grow', h('div.line', h('strong', title), time && h('span', clock(time), ' ', h('span.faint', '(', when(time), ')'))), details.length > 0 && h('div.detail', details)))));

const expanded = new Set(); // what is shown in full

// Text that may be large: the first part, and the rest on request.
function longText(id, name, content, classes) {
	const isWhole = content.length <= SHOWN || expanded.has(id + name);
	return [h(`pre${classes}`, { tabindex: '0', label: name, 'data-text': name }, isWhole ? content : shorten(content, SHOWN)),
		!isWhole && link(`Show all ${count(content.length)} characters`, () => { expanded.add(id + name); state.redraw(); })];
}

function jsonCard(row, title, json) {
	const name = title.toLowerCase();
	const isIndented = recall('tab', 'indent');
	return card(title, h('div.buttons', aside(bytes(new Blob([json]).size)),
		button(null, 'Indent', () => { remember('tab', 'indent', !isIndented && 'on'); state.redraw(); }, { class: 'quiet', 'aria-pressed': String(Boolean(isIndented)) }),
		button('copy', 'Copy', () => copyText(json, name), { class: 'quiet' }),
		button('download', 'Download', () => download(`${row.id}-${name}.json`, 'application/json', json), { class: 'quiet' })),
	longText(row.id, name, isIndented ? indent(json) : json, ''));
}

function payload(row, raw) {
	if (row.payload_hidden) return card('Payload', null, h('p.hint', icon('hidden'), 'The server hides payloads (admin.show_payloads).'));
	const json = row.payload_text ?? raw.payload;
	const body = row.body_base64 && Uint8Array.from(atob(row.body_base64), (character) => character.charCodeAt(0));
	return [json && !(body && json === 'null') && jsonCard(row, 'Payload', json),
		body && card('Body', h('div.buttons', aside(`${bytes(body.length)}, ${visible(row.content_type)}`),
			button('download', 'Download', () => download(`${row.id}.bin`, 'application/octet-stream', body), { class: 'quiet' })))];
}

function steps(raw) {
	const done = Object.entries(members(raw.steps || '{}'));
	return done.length > 0 && card('Steps', aside(`${plural(done.length, 'step')} completed`), h('ol', done.map(([name, json]) => {
		const { result, at } = json[0] === '{' ? members(json) : { result: json };
		return h('li.step', icon('check'), h('div.grow', h('div.line', h('strong', visible(name)), at && when(JSON.parse(at))),
			result && result !== '""' && h('pre', { tabindex: '0', label: `Result of ${name}` }, shorten(result, 4000))));
	})));
}

function fields(table, row) {
	const same = (name, param) => (row[name] ? h('a', { href: address(['messages', table], { [param]: row[name] }) }, visible(row[name])) : value(null));
	const copy = (name) => row[name] && copyIcon(row[name], name.replace('_', ' '));
	return card('Fields', null, h('dl.pairs', pair('Id', h('span.mono', visible(row.id)), copy('id')),
		table === 'inbox' && pair('Handler', same('handler', 'handler')), row.namespace && pair('Namespace', same('namespace', 'namespace')),
		pair('Topic', same('topic', 'topic')), pair('Key', same('key', 'key'), copy('key')), pair('Tenant', same('tenant_id', 'tenant'), copy('tenant_id')),
		table === 'outbox' && pair('Dedupe key', value(row.dedupe_key), copy('dedupe_key')), pair('Correlation id', value(row.correlation_id), copy('correlation_id')),
		pair('Content type', value(row.content_type)), pair('Attempts', count(row.attempts)), pair('Claims', count(row.claims)), row.seq && pair('Sequence', row.seq),
		pair('Created', clock(row.created_at)), pair('Updated', clock(row.updated_at))));
}

export function message(table, { path }) {
	const wanted = table === 'inbox' ? { handler: path[2], id: path[3] } : { id: path[2] };
	const up = address(['messages', table]);
	const crumb = () => h('p', h('a.crumb', { href: up, 'data-up': true }, icon('left'), table === 'inbox' ? 'Inbox' : 'Outbox'));
	let row = null;
	let raw = null;
	let isActing = false;
	let loads = 0;

	async function retry() {
		isActing = true;
		state.redraw();
		await actOnRow('retry', table, row).then(() => toast('The message is pending again.'), (error) => toast(`Cannot retry: ${error.message}`, 'bad'));
		isActing = false;
		loads = 0;
		state.refresh();
	}
	const change = (action) => bulk({ action, table, rows: [row], onEnd: () => navigate(up, { replace: true }) });

	const head = () => h('div.message-head', h('div.grow', crumb(), h('h2', visible(table === 'inbox' ? row.handler : row.topic)), h('p.mono.faint', visible(row.id), copyIcon(row.id, 'the id'))),
		h('div.buttons', statusPill(row), !isReadOnly() && [row.status === 'dead' && button('retry', 'Retry', retry, { class: 'primary', disabled: isActing }),
			isFinished(row) && button('trash', 'Delete…', () => change('delete'), { class: 'danger' })]));

	const error = () => row.last_error && card(row.status === 'dead' ? 'Why it is dead' : 'Last error', button('copy', 'Copy', () => copyText(row.last_error, 'the error'), { class: 'quiet' }),
		longText(row.id, 'error', visible(row.last_error), '.error-box'));

	return {
		title: 'Message',
		up,
		async load() {
			// A large message that can no longer change is not fetched every two seconds.
			if (loads++ % 15 && raw?.payload_text?.length > SHOWN && isFinished(row)) return;
			const json = await text(messagePath(table, wanted), { timeout: 60000 });
			raw = members(json);
			row = JSON.parse(json);
		},
		render: () => row && [head(), h('div.columns',
			h('div.stack', error(), card('Timeline', null, timeline(row)), payload(row, raw),
				raw.checkpoint && raw.checkpoint !== 'null' && jsonCard(row, 'Checkpoint', raw.checkpoint), steps(raw),
				Object.keys(row.headers || {}).length > 0 && card('Headers', null, h('dl.pairs.mono', Object.entries(row.headers).map(([name, given]) => pair(visible(name), value(given)))))),
			fields(table, row))],
		act(action) {
			if (!row || isReadOnly()) return;
			if (action === 'retry' && row.status === 'dead') retry();
			else change(action);
		},
		missing: () => [crumb(), empty('This message does not exist', 'It was deleted, or the address is wrong.', 'search')],
	};
}
