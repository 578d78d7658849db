// SPDX-License-Identifier: Apache-2.0
// Messages of the outbox and the inbox, newest first, in pages by keyset. The filters are in the
// address; the server applies them.
import { bulk } from './bulk.js';
import { address, get, isReadOnly, messageAddress, navigate, parseRoute, query, state, text } from './core.js';
import { h } from './dom.js';
import { clock, count, now, plural } from './format.js';
import { button, clip, download, empty, isFinished, leaseEnds, link, loading, number, statusPill, table as rowTable, toast, when } from './parts.js';

const PAGE = 50;
const GROUPS = 100; // the server sends no more
const STATUSES = {
	outbox: { '': 'All', pending: 'Pending', failed: 'Retrying', processing: 'In flight', delivered: 'Delivered', dead: 'Dead' },
	inbox: { '': 'All', pending: 'Pending', failed: 'Retrying', active: 'In flight', completed: 'Completed', dead: 'Dead' },
};
const LABELS = { status: 'Status', topic: 'Topic', handler: 'Handler', key: 'Key', error: 'Error contains', namespace: 'Namespace',
	tenant: 'Tenant', id: 'Id', fingerprint: 'Cause', sink: 'Sink', created_from: 'Created from', created_to: 'Created before' };
const WITHIN = { '5m': ['the last 5 minutes', 300], '1h': ['the last hour', 3600], '24h': ['the last 24 hours', 86400], '7d': ['the last 7 days', 604800] };

// The filter as the server takes it.
function serverFilter(params) {
	const filter = Object.fromEntries(Object.keys(LABELS).filter((name) => params[name]).map((name) => [name, params[name]]));
	if (WITHIN[params.within]) filter.created_from = new Date(now() - WITHIN[params.within][1] * 1000).toISOString();
	return filter;
}

// The filter for people.
const describe = (params) => Object.entries(serverFilter(params)).map(([name, given]) => [LABELS[name], given]);

let editing = ''; // all letters typed into a field make one entry of the history
let typing;

function change(changes, field = '') {
	const route = parseRoute(location.hash);
	const next = address(route.path, { ...route.params, after: '', ...changes });
	if (next === location.hash) return;
	const replace = field && editing === field;
	editing = field;
	navigate(next, { replace });
}

// The fields of a form.
function read(form) {
	return Object.fromEntries([...form.elements].filter(({ name }) => name).map(({ name, value, type }) =>
		[name, type === 'datetime-local' ? value && new Date(value).toISOString() : value.trim()]));
}

function field(params, name, placeholder = '', attributes = {}) {
	const apply = ({ form }) => change(read(form), name);
	const isTime = attributes.type;
	const given = params[name] || '';
	return h('label.field', { key: name, class: /error|fingerprint|^id|^created/.test(name) && 'wide' }, h('span', LABELS[name]), h('input', {
		type: 'text', name, placeholder, value: isTime && given ? clock(given).slice(0, 16).replace(' ', 'T') : given, autocomplete: 'off', spellcheck: 'false', ...attributes,
		oninput: ({ target }) => {
			clearTimeout(typing);
			if (!isTime) typing = setTimeout(apply, 300, target);
		},
		onchange: ({ target }) => {
			clearTimeout(typing);
			apply(target);
			editing = '';
		},
	}));
}

// isShort: only what selects dead letters by group.
function filterForm(params, isInbox, isShort) {
	const isCustom = params.created_from || params.created_to || params.within === 'custom';
	const isUsed = isCustom || ['namespace', 'tenant', 'id', 'within'].some((name) => params[name]);
	const option = (value, text) => h('option', { value }, text);
	const time = { type: 'datetime-local' };
	return h('form.filters', { role: 'search', label: 'Filters', onsubmit: (event) => event.preventDefault() },
		h('div.fields', isInbox && field(params, 'handler', 'rewards', { 'data-first': true }), field(params, 'topic', 'orders.*', { 'data-first': !isInbox }),
			!isShort && field(params, 'key', 'o-1'), field(params, 'error', 'text, such as timeout'), params.fingerprint && field(params, 'fingerprint'), params.sink && field(params, 'sink')),
		h('details.more', { open: isUsed }, h('summary', 'More filters'), h('div.fields',
			!isInbox && field(params, 'namespace', 'default'), field(params, 'tenant', 'uuid'), !isShort && field(params, 'id', isInbox ? 'event id' : 'uuid'),
			h('label.field', { key: 'within' }, h('span', 'Created'), h('select', { name: 'within', value: isCustom ? 'custom' : params.within || '',
				onchange: ({ target }) => change({ ...read(target.form), created_from: '', created_to: '' }) },
			option('', 'any time'), Object.entries(WITHIN).map(([key, [words]]) => option(key, words)), option('custom', 'between…'))),
			isCustom && [field(params, 'created_from', '', time), field(params, 'created_to', '', time)])),
		h('button.link.clear', { disabled: !Object.keys(params).some((name) => name !== 'status' && name !== 'after'),
			onclick: () => navigate(address(parseRoute(location.hash).path, { status: params.status })) }, 'Clear filters'));
}

const tableTabs = (table, path) => h('nav.tabs', { label: 'Table' }, ['outbox', 'inbox'].map((name) =>
	h('a', { href: address([path, name]), current: name === table && 'page' }, name === 'outbox' ? 'Outbox' : 'Inbox')));

function statusLinks(table, params) {
	const { stats } = state;
	const counts = table === 'inbox' ? stats?.inbox : stats;
	return h('nav.tabs', { label: 'Status' }, Object.entries(STATUSES[table]).map(([status, label]) => {
		const known = counts?.[status === 'failed' ? 'failed_pending' : status];
		return h('a', { href: address(['messages', table], { ...params, status, after: '' }), current: (params.status || '') === status && 'true' },
			label, known != null && h('span.faint', count(known, stats.capped), counts[`${status}_capped`] && '+'));
	}));
}

// Past and future events.
function outcome(row) {
	if (row.status === 'delivered') return ['delivered ', when(row.delivered_at)];
	if (row.status === 'completed') return ['completed ', when(row.processed_at)];
	if (row.locked_until) return ['lease', leaseEnds(row)];
	const error = (tag) => clip(row.last_error, { tag: `span.clip.${tag}` });
	if (row.status === 'dead') return row.last_error ? error('two-lines.error') : h('span.faint', 'no error recorded');
	return row.last_error ? [error('error'), h('span.under', 'due ', when(row.next_attempt_at))] : ['due ', when(row.next_attempt_at)];
}

// Rows that are known do not match a filter that the server rejects.
const isMissing = (rows, error) => !rows || error?.status === 400;

const keyOf = (row) => (row.handler ? `${row.handler}/${row.id}` : row.id);

export function messages(table, { path, params }) {
	const isInbox = table === 'inbox';
	const selected = new Map();
	let list = null;

	function select(chosen, isSelected) {
		for (const row of chosen) {
			if (isSelected) selected.set(keyOf(row), row);
			else selected.delete(keyOf(row));
		}
		state.redraw();
	}
	const onEnd = () => { selected.clear(); state.refresh(); };
	const actOnRows = (action, rows) => bulk({ action, table, rows, onEnd });
	const actOnSelected = (action) => actOnRows(action, [...selected.values()]);
	const actOnMatching = (action) => bulk({ action, table, filter: serverFilter(params), words: describe(params), onEnd });

	function actions() {
		if (isReadOnly()) return null;
		if (!selected.size) {
			return list.total > 0 && [params.status === 'dead' && button('retry', 'Retry all matching…', () => actOnMatching('retry')),
				isFinished(params) && button('trash', 'Delete all matching…', () => actOnMatching('delete'), { class: 'danger' })];
		}
		return [h('strong', `${plural(selected.size, 'message')} selected`), button('retry', 'Retry selected', () => actOnSelected('retry')),
			button('trash', 'Delete selected', () => actOnSelected('delete'), { class: 'danger' }), link('Clear selection', () => select([...selected.values()], false))];
	}

	function save(format) {
		text(`${table}.${format}${query(serverFilter(params))}`, { timeout: 600000 })
			.then((content) => download(`${table}.${format}`, 'text/plain', content), (error) => toast(`Cannot export: ${error.message}`, 'bad'));
	}

	function rows() {
		const isAll = list.items.every((row) => selected.has(keyOf(row)));
		const tick = !isReadOnly() && h('input', { type: 'checkbox', label: 'Select all on this page', checked: isAll, indeterminate: !isAll && selected.size > 0,
			onchange: ({ target }) => select(list.items, target.checked) });
		const columns = [tick, 'Status:col-state', isInbox ? 'Handler and event:col-main' : 'Topic and id:col-main', isInbox ? 'Topic:col-key' : 'Key:col-key', 'Attempts:num', 'Created:num', 'Outcome:col-wide'];
		return rowTable('Messages', columns.slice(tick ? 0 : 1), list.items.map((row) => [keyOf(row), [
			h('input', { type: 'checkbox', 'data-select': true, checked: selected.has(keyOf(row)), label: `Select ${row.id}`, onchange: ({ target }) => select([row], target.checked) }),
			statusPill(row), h('a.row-link', { href: messageAddress(table, row) }, clip(isInbox ? row.handler : row.topic), h('span.under.mono', clip(row.id))),
			clip(isInbox ? row.topic : row.key), number(count(row.attempts), row.attempts > 1 && 'warn'), when(row.created_at), outcome(row),
		].slice(tick ? 0 : 1), { class: selected.has(keyOf(row)) && 'selected', onclick: ({ target }) => {
			if (!target.closest('a, button, input') && !String(getSelection())) navigate(messageAddress(table, row), { data: { fromList: true } });
		} }]), 'list');
	}

	function pager() {
		const depth = history.state?.depth || 0;
		if (!params.after && !list.next_after) return null;
		return h('nav.pager', { label: 'Pages' },
			button(null, 'Newest', () => change({}), { disabled: !params.after }),
			button('left', 'Newer', () => history.back(), { disabled: !depth }),
			button('right', 'Older', () => { navigate(address(path, { ...params, after: list.next_after }), { data: { depth: depth + 1 } }); scrollTo(0, 0); }, { disabled: !list.next_after, class: 'after' }));
	}

	function nothing() {
		const used = Object.keys(serverFilter(params)).length;
		if (params.after) return empty('No older messages', 'This is the end of the list.', 'messages');
		if (params.status === 'dead' && used === 1) return empty('Nothing is wrong', 'There are no dead letters.');
		if (used) return empty('No messages match', 'Remove a filter to see more.', 'search');
		return empty(`The ${table} is empty`, isInbox ? 'Events and jobs appear here when a handler receives them.' : 'Messages appear here when something is enqueued.', 'messages');
	}

	return {
		title: 'Messages',
		async load() {
			list = await get(table + query({ ...serverFilter(params), page_size: PAGE, after: params.after }));
		},
		render: (error) => [h('div.heading', tableTabs(table, 'messages'), statusLinks(table, params)), filterForm(params, isInbox),
			isMissing(list, error) ? loading(error) : h('section.card.flush', { label: 'Messages' },
				h('div.toolbar', h('span.total', { 'data-total': list.total }, plural(list.total, 'message', list.total_capped)), h('span.grow'), actions(),
					h('span.buttons', ['CSV', 'NDJSON'].map((format) => button('download', format, () => save(format.toLowerCase()), { class: 'quiet', label: `Export as ${format}` })))),
				list.items.length ? rows() : nothing(), pager())],
		act(action, key) {
			const row = list?.items.find((one) => keyOf(one) === key);
			if (isReadOnly()) return;
			if (selected.size) actOnSelected(action);
			else if (row) actOnRows(action, [row]);
		},
		// Typing into a filter must not blank the view.
		adopt: (before) => { list = before.list(); },
		list: () => list,
	};
}

// Dead letters by cause: one row for each kind of error, with what can be done about all of them.

const groupKey = (group) => [group.handler, group.topic, group.sink, group.fingerprint].join('\n');

export function dead(table, { params }) {
	const isInbox = table === 'inbox';
	let groups = null;

	const filterOf = ({ fingerprint, sink, topic, handler }) => ({ ...params, status: 'dead', fingerprint, sink, topic: topic || params.topic, handler: handler || params.handler });
	function act(action, group) {
		const filter = group ? filterOf(group) : { ...params, status: 'dead' };
		const words = describe({ ...filter, fingerprint: group && (group.example_error || group.fingerprint) });
		bulk({ action, table, filter: serverFilter(filter), words, onEnd: () => state.refresh() });
	}
	const buttons = (group, mark) => !isReadOnly() && h('div.buttons', button('retry', `Retry${mark}…`, () => act('retry', group)),
		button('trash', `Delete${mark}…`, () => act('delete', group), { class: 'danger' }));
	const fact = (name, shown) => h('span', h('span.faint', `${name} `), shown);

	const groupRow = (group) => h('li.group', { key: groupKey(group), row: groupKey(group) },
		h('div.group-count', h('strong', count(group.count)), h('span', group.count === 1 ? 'message' : 'messages')),
		h('div.grow',
			h('a.row-link', { href: address(['messages', table], filterOf(group)) }, clip(group.example_error || 'no error recorded', { limit: 2000, tag: 'span.clip.two-lines.mono' })),
			h('p.facts', group.handler && fact('handler', clip(group.handler)), group.topic && fact('topic', clip(group.topic)), group.sink !== '<none>' && fact('sink', clip(group.sink)), fact('first', when(group.first_at)), fact('last', when(group.last_at)),
				h('a', { href: messageAddress(table, { id: group.example_id, handler: group.handler }) }, 'Example'))),
		buttons(group, ''));

	function list() {
		const total = groups.items.reduce((sum, group) => sum + group.count, 0);
		const isCut = groups.items.length >= GROUPS;
		const many = (value, one, isMore) => `${count(value)}${isMore ? '+' : ''} ${one}${value === 1 ? '' : 's'}`;
		if (!total) {
			return h('section.card', { 'data-total': 0 }, Object.keys(serverFilter(params)).length ? empty('No dead letters match', 'Remove a filter to see more.', 'search')
				: empty('Nothing is wrong', 'There are no dead letters. Messages that keep failing appear here, grouped by cause.'));
		}
		return h('section.card.flush', { label: 'Causes' },
			h('div.toolbar', h('span.total', { 'data-total': total }, many(total, 'dead letter', groups.capped || isCut), ', ', many(groups.items.length, 'cause', isCut)),
				groups.capped && h('span.faint', 'Only the newest are grouped.'), isCut && h('span.faint', `Only the ${GROUPS} largest groups are shown.`), h('span.grow'), buttons(null, ' all')),
			h('ul', groups.items.map(groupRow)));
	}

	return {
		title: 'Dead letters',
		interval: 5000,
		async load() {
			groups = await get(`${table}/groups${query({ ...serverFilter(params), status: 'dead' })}`);
		},
		render: (error) => [tableTabs(table, 'dead'), filterForm(params, isInbox, true), isMissing(groups, error) ? loading(error) : list()],
		act(action, key) {
			const group = groups?.items.find((one) => groupKey(one) === key);
			if (group && !isReadOnly()) act(action, group);
		},
		adopt: (before) => { groups = before.groups(); },
		groups: () => groups,
	};
}
