// SPDX-License-Identifier: Apache-2.0
// The state of the whole: is anything wrong, what, since when, and what to do; and the workers.
import { chart } from './chart.js';
import { address, get, state } from './core.js';
import { h, icon } from './dom.js';
import { NONE, clock, count, duration, latency, now, plural, rate, visible } from './format.js';
import { aside, button, card, clip, copyIcon, empty, number, pill, table, value, when } from './parts.js';

export const HEALTH = { healthy: ['ok', 'check', 'Healthy'], degraded: ['warn', 'alert', 'Degraded'], unhealthy: ['bad', 'cross', 'Unhealthy'] };
const BREAKERS = { closed: ['ok', 'check', 'Closed'], open: ['bad', 'cross', 'Open'], 'half-open': ['warn', 'half', 'Half-open'] };
const outbox = (params) => address(['messages', 'outbox'], params);

// Where to look next, by the component of a reason.
const REMEDIES = [
	[/dead/, 'Show dead letters', address(['dead', 'outbox'])],
	[/inbox/, 'Show inbox dead letters', address(['dead', 'inbox'])],
	[/age|backlog|routes/, 'Show the backlog', outbox({ status: 'pending' })],
	[/store/, 'Ask the doctor', address(['workers'])],
	[/./, 'Show workers and sinks', address(['workers'])],
];

// The server's sentence, with its numbers for people; the reason of a sink is in its own words.
const words = ({ component, message }) => (/sink|worker/.test(component) ? visible(message)
	: message.replace(/(\d+) s\b/g, (_, seconds) => duration(seconds).replace(/ 0 \w+$/, '')).replace(/\d{4,}/g, (digits, at) => count(Number(digits), !at && state.stats.capped)));

const since = (time) => h('span.since', 'since ', clock(time).slice(now() - Date.parse(time) < 864e5 ? 11 : 0, 19), ', ', when(time));

function lately(history) {
	const [delivered, failed] = ['delivered', 'failed'].map((name) => history.reduce((sum, sample) => sum + sample[name], 0));
	if (!delivered && !failed) return 'No deliveries in the last 15 minutes.';
	return `${plural(delivered, 'message')} delivered in the last 15 minutes, ${failed ? plural(failed, 'attempt') : 'none'} failed.`;
}

function health({ status, reasons, history }) {
	const [tone, iconName, word] = HEALTH[status];
	const wrong = [...reasons].sort((a, b) => (b.status === status) - (a.status === status));
	return h(`section.health.${tone}`, { label: 'Health' }, h('div.badge', icon(iconName)), h('div.grow', h('h2', { 'data-health': status }, word),
		wrong.length ? h('ul', wrong.map((reason) => {
			const [, next, href] = REMEDIES.find(([pattern]) => pattern.test(reason.component));
			return h('li', h('div', h('span', words(reason)), reason.since && since(reason.since)), h('a', { href }, next, icon('right')));
		})) : h('p', `Nothing is wrong. ${lately(history)}`)));
}

function tile(label, text, note, href, tone) {
	return h('a.tile', { href, class: tone, 'data-tile': label }, h('span', label), h('strong', text.split(' ').map((part, at) => (at % 2 ? h('span', ` ${part} `) : part))), h('small', note));
}

function tiles(stats) {
	const show = (value) => count(value, stats.capped);
	return h('div.tiles',
		tile('Backlog', show(stats.backlog), 'not yet delivered', outbox({ status: 'pending' })),
		tile('Due', show(stats.due), stats.scheduled ? `${show(stats.scheduled)} scheduled` : 'ready for delivery', outbox({ status: 'pending' })),
		tile('In flight', show(stats.processing), 'claimed by a worker', outbox({ status: 'processing' })),
		tile('Retrying', show(stats.failed_pending), 'failed at least once', outbox({ status: 'failed' }), stats.failed_pending && 'warn'),
		tile('Dead', show(stats.dead), stats.dead ? 'no longer retried' : 'no dead letters', address(['dead', 'outbox']), stats.dead && 'bad'),
		tile('Oldest due', stats.backlog ? duration(stats.oldest_age_seconds) : NONE, 'waiting for delivery', outbox({ status: 'pending' })));
}

// The samples of the history as points; counts are divided by the time of their sample.
function points(history, field, isCount) {
	const times = history.map((sample) => Date.parse(sample.at));
	return history.map((sample, at) => {
		const seconds = isCount ? Math.max(1, (times[at || 1] - times[(at || 1) - 1]) / 1000 || 5) : 1;
		return { at: times[at], value: sample[field] === null ? null : sample[field] / seconds };
	});
}

function charts({ history, rates }) {
	const line = (label, tone, field, current) => ({ label, tone, area: /ok|accent/.test(tone), dashed: /bad|warn/.test(tone), points: points(history, field, current), current });
	const p = (label, tone, field) => {
		const one = line(label, tone, field);
		return { ...one, current: latency(one.points.findLast(({ at, value }) => value !== null && at > now() - 60000)?.value) };
	};
	const per = (span, name) => `${rate(rates[span]?.[`${name}_per_second`])}/s`;
	return h('div.two',
		card('Deliveries', aside(`${per('5m', 'delivered')} in 5 min, ${per('15m', 'delivered')} in 15 min`), chart({ id: 'rate', label: 'Deliveries per second', minimum: 1, format: rate,
			series: [line('Delivered', 'ok', 'delivered', per('1m', 'delivered')), line('Failed', 'bad', 'failed', per('1m', 'failed'))] })),
		card('Latency', aside('from commit to delivery'), chart({ id: 'latency', label: 'Delivery latency', minimum: 0.01, format: latency,
			series: [p('p50', 'accent', 'p50_seconds'), p('p99', 'warn', 'p99_seconds')] })));
}

// Of this process: others may have received more.
const lastError = ({ last_error: text, last_error_at: at }) => (text
	? h('div', clip(text, { focusable: true, tag: 'span.clip.two-lines' }), h('span.under', when(at))) : h('span.faint', NONE));

function topicsCard({ items, capped }) {
	const isOne = new Set(items.map(({ namespace }) => namespace)).size < 2;
	const shown = (value, tone) => number(count(value, capped), value > 0 && tone);
	const rows = items.map(({ namespace, topic, ...by }) => [`${namespace}/${topic}`, [
		h('a.row-link', { href: outbox({ topic, namespace: isOne ? '' : namespace }) }, clip(topic), !isOne && h('span.under', clip(namespace))),
		shown(by.pending), shown(by.processing), shown(by.failed_pending, 'warn'),
		by.dead ? h('a.number.bad', { href: address(['dead', 'outbox'], { topic }) }, count(by.dead, capped)) : number('0'),
		number(by.oldest_age_seconds ? duration(by.oldest_age_seconds) : NONE), lastError(by)]]);
	return card('Topics', capped && aside(`of a sample of the messages${items.length >= 100 ? ', the first 100' : ''}`), rows.length ? table('Topics', ['Topic:col-main', 'Pending:num', 'In flight:num', 'Retrying:num', 'Dead:num', 'Oldest due:num', 'Last error:col-wide'], rows, 'roomy')
		: empty('No messages yet', 'Topics appear here when something is enqueued.', 'messages'));
}

function breaker({ breaker: name, open_since: opened }) {
	return [pill(...BREAKERS[name] || ['neutral', 'info', name]), name === 'open' && h('span.under', 'opened ', when(opened)),
		name === 'half-open' && h('span.under', 'a probe is in flight')];
}

function sinksCard({ items }) {
	const rows = items.map((sink) => [sink.name, [
		[clip(sink.name, { tag: 'strong.clip' }), h('span.under', clip(sink.url, { focusable: true }))], h('div', breaker(sink)),
		lastError(sink), number(count(sink.in_flight)), number(count(sink.delivered)), number(count(sink.failed), sink.failed > 0 && 'warn'), when(sink.last_delivery_at)]]);
	return card('Sinks', aside('since the relay started'), rows.length ? table('Sinks', ['Sink:col-main', 'Breaker', 'Last error:col-wide', 'In flight:num', 'Delivered:num', 'Failed:num', 'Last delivery:num'], rows, 'roomy')
		: empty('No sinks', 'This process delivers nothing.', 'info'));
}

function inboxStrip({ pending, active, dead }) {
	const part = (name, value, tone, href = address(['messages', 'inbox'], { status: name })) => h('a', { href }, name === 'active' ? 'In flight' : name, number(count(value, true), value > 0 && tone));
	if (!pending && !active && !dead) return null;
	return h('section.card.strip', { label: 'Inbox' }, h('h2', 'Inbox'), part('pending', pending), part('active', active), part('dead', dead, 'bad', address(['dead', 'inbox'])));
}

export function overview() {
	let topics;
	let sinks;
	return {
		title: 'Overview',
		async load() {
			[topics, sinks] = await Promise.all([get('topics'), get('sinks')]);
		},
		render: () => state.stats && [health(state.stats), tiles(state.stats), inboxStrip(state.stats.inbox), charts(state.stats), sinks && sinksCard(sinks), topics && topicsCard(topics)],
	};
}

// Workers, leases, sinks, and what the doctor found in the database.

const LEVELS = { problem: ['bad', 'cross', 'Problem'], warning: ['warn', 'alert', 'Warning'], note: ['accent', 'info', 'Note'],
	skipped: ['neutral', 'circle', 'Skipped'], ok: ['ok', 'check', 'OK'] };
const ORDER = Object.keys(LEVELS);
const worker = (id) => clip(id, { focusable: true, tag: 'span.clip.mono' });

const workersCard = (items) => card('Workers of this process', aside(plural(items.length, 'worker')), items.length
	? table('Workers', ['Worker:col-main', 'Sink', 'State', 'In flight:num', 'Since:num'], items.map((one, at) =>
		[`${one.worker} ${at}`, [worker(one.worker), clip(one.sink), clip(one.state), number(count(one.in_flight)), when(one.since)]]))
	: empty('No workers', 'This process has no workers.', 'workers'));

const leasesCard = (items) => card('Leases in the database', aside('of all relays and consumers'), items.length
	? table('Leases', ['Worker:col-main', 'Table', 'Messages:num', 'Lanes:num', 'Ends:num'], items.map((one) =>
		[`${one.worker} ${one.table}`, [worker(one.worker), value(one.table), number(count(one.messages)), number(count(one.lanes)), when(one.locked_until)]]))
	: empty('No leases', 'No message is in flight.', 'lock'));

const finding = ({ check, level, title, detail, advice, command }, at) => h('li.finding', { key: `${check} ${at}`, row: check }, h('div', pill(...LEVELS[level] || ['neutral', 'info', level])),
	h('div.grow', value(title, 'strong'), ' ', value(check, 'small.faint'), detail && value(detail, 'p'), advice && value(advice, 'p.faint'),
		command && h('p.command', value(command, 'code'), copyIcon(command, 'the command'))));

function findings(list) {
	const items = [...list].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
	const wrong = items.filter(({ level }) => level !== 'ok');
	const fine = items.slice(wrong.length);
	return [wrong.length ? h('ul.findings', wrong.map(finding)) : empty('Nothing is wrong', 'All checks passed.'),
		fine.length > 0 && h('details.more', h('summary', `${plural(fine.length, 'check')} passed`), h('ul', fine.map(finding)))];
}

// doctor: the answer, the error, or undefined until the first check has ended.
const doctorCard = (doctor, check, isChecking) => card('Doctor', h('div.buttons', doctor?.checked_at && h('span.aside', 'checked ', when(doctor.checked_at)), button(null, isChecking ? 'Checking…' : 'Check again', check, { class: 'quiet', disabled: isChecking })),
	!doctor ? h('p.loading', 'Checking the database, the configuration and the sinks…') : (doctor.items ? findings(doctor.items) : empty('The doctor is not available', `${doctor.status === 404 ? '' : `${doctor.message}. `}Run “postroom doctor” in a terminal.`, 'info')));

export function workers() {
	let found;
	let sinks;
	let doctor;
	let isChecking;
	async function check() {
		isChecking = true;
		state.redraw();
		doctor = await get('doctor', 60000).catch((error) => error);
		isChecking = false;
		state.redraw();
	}
	return {
		title: 'Workers and database',
		async load() {
			if (isChecking === undefined) check();
			[found, sinks] = await Promise.all([get('workers'), get('sinks')]);
		},
		render: () => found && [doctorCard(doctor, check, isChecking), h('div.two', workersCard(found.items), leasesCard(found.leases)), sinksCard(sinks)],
	};
}
