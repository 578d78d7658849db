// SPDX-License-Identifier: Apache-2.0
// The frame: navigation, refresh, keyboard.
import { address, get, navigate, parseRoute, recall, remember, state } from './core.js';
import { $, h, icon, render } from './dom.js';
import { ago, clock, count, duration, now } from './format.js';
import { message } from './message.js';
import { dead, messages } from './messages.js';
import { HEALTH, overview, workers } from './overview.js';
import { areKeysOn, askToken, button, empty, helpDialog, hideTip, loading, pill, toast, watchTips } from './parts.js';

const REFRESH = 2000;
const REFRESH_MAXIMUM = 30000;
const THEMES = ['system', 'light', 'dark'];
const NAVIGATION = { overview: ['Overview', address(['overview'])], messages: ['Messages', address(['messages', 'outbox'])],
	dead: ['Dead letters', address(['dead', 'outbox'])], workers: ['Workers and database', address(['workers'])] };

const main = $('main');
let view = null;
let route = null;
let viewError = null;
let isPaused = Boolean(recall('tab', 'paused'));
let failures = 0;
let outage = null; // the error, while the server does not answer
let updatedAt = 0; // when the numbers were fetched
let nextAt = 0;
let viewAt = 0; // when the view may fetch again
let timer;
let turn = 0;
const places = new Map(); // scroll positions and focused rows, by address
let wanted = null; // the place to return to, once its rows are there

function viewFor({ path, params }) {
	const table = path[1] === 'inbox' ? 'inbox' : 'outbox';
	if (path[0] === 'messages' && path.length > (table === 'inbox' ? 3 : 2)) return message(table, { path });
	if (path[0] === 'messages') return messages(table, { path: ['messages', table], params });
	if (path[0] === 'dead') return dead(table, { params });
	return path[0] === 'workers' ? workers() : overview();
}

const theme = () => document.documentElement.dataset.theme || 'system';

function nextTheme() {
	const next = THEMES[(THEMES.indexOf(theme()) + 1) % 3];
	remember('all', 'theme', next !== 'system' && next);
	document.documentElement.dataset.theme = next;
	draw();
}

function drawSide() {
	const { stats } = state;
	const section = NAVIGATION[route.path[0]] ? route.path[0] : 'overview';
	const deadCount = (stats?.dead || 0) + (stats?.inbox?.dead || 0);
	// Not the icon of the state: a cross would look like a button that closes.
	const flag = ([tone, , word]) => h(`span.flag.${tone}`, { role: 'img', label: word, tip: word }, icon('alert'));
	const foot = (iconName, text, onclick) => h('button.quiet', { onclick, label: text, tip: text }, icon(iconName), h('span.wide-only', text));
	render($('side'),
		h('a.brand', { href: address(['overview']), label: 'Postroom, overview' }, h('span.mark', icon('mark')), 'Postroom'),
		h('nav.nav', { label: 'Views' }, Object.entries(NAVIGATION).map(([name, [text, href]]) => h('a', { href, current: name === section && 'page' }, icon(name), text,
			name === 'overview' && stats && stats.status !== 'healthy' && flag(HEALTH[stats.status]),
			name === 'dead' && deadCount > 0 && h('span.count', count(deadCount, stats.capped))))),
		h('div.side-foot', foot('half', `Theme: ${theme()}`, nextTheme), foot('keyboard', 'Keyboard shortcuts', helpDialog),
			recall('tab', 'token') && foot('key', 'Forget the token', () => { remember('tab', 'token', null); location.reload(); }),
			stats && h('p.version', `Postroom ${stats.version} · ${{ sqlite: 'SQLite', postgres: 'PostgreSQL' }[stats.database]}`)));
}

function liveness() {
	const age = Date.now() - updatedAt;
	const old = duration(age / 1000);
	if (outage) return ['bad', updatedAt ? `No answer for ${old}` : 'No answer'];
	if (isPaused) return ['off', updatedAt ? `Paused · numbers are ${old} old` : 'Paused'];
	if (!updatedAt) return ['off', 'Loading…'];
	if (age >= 5000) return ['off', `Updated ${old} ago`];
	// Counting a large table is expensive: the server does it less often.
	const counted = (now() - Date.parse(state.stats.collected_at)) / 1000;
	return ['ok', 'Live', counted >= 5 && `counted ${duration(counted)} ago`];
}

function drawBar() {
	const { stats } = state;
	const [tone, words, note] = liveness();
	const mode = (name, iconName, text, tip) => h('span', { 'data-mode': name, tip, tabindex: '0' }, pill('neutral', iconName, text));
	render($('bar'), h('h1', { tabindex: '-1', id: 'title' }, view.title), h('span.grow'),
		stats?.read_only && mode('read-only', 'lock', 'Read-only', 'The server allows no changes.'),
		stats?.show_payloads === false && mode('payloads-hidden', 'hidden', 'Payloads hidden', 'The server does not send payloads.'),
		h(`span.live.${tone}`, h('i'), h('span', words), note && h('small', note)),
		h('div.buttons', h('button', { onclick: () => setPaused(!isPaused), label: isPaused ? 'Resume' : 'Pause' }, icon(isPaused ? 'play' : 'pause'), h('span.wide-only', isPaused ? 'Resume' : 'Pause')),
			button('retry', '', refresh, { class: 'square', label: 'Refresh now', tip: 'Refresh now' })));
	const wait = Math.max(0, Math.ceil((nextAt - Date.now()) / 1000));
	render($('notice'), outage && h('div.notice.bad', { role: 'alert' }, icon('alert'), h('span.grow', `${outage.message}. `, updatedAt ? `The numbers are from ${clock(updatedAt).slice(11, 19)}. ` : '',
		h('span', { 'aria-hidden': 'true' }, !isPaused && `Next attempt in ${wait} s.`)), button(null, 'Retry now', refresh)));
}

function drawMain() {
	document.body.classList.toggle('stale', Boolean(outage));
	if (viewError?.status === 404 && view.missing) render(main, view.missing());
	else render(main, viewError && !outage && h('div.notice.warn', { role: 'alert' }, icon('alert'), `${viewError.message}.`),
		view.render(viewError) || (outage ? empty('The server cannot be reached', 'The page keeps trying.', 'alert') : loading(viewError)));
}

function draw() {
	drawSide();
	drawBar();
	drawMain();
}

// Fetches what the view shows. A view that is expensive for the server is refreshed less often.
async function loadView(isForced) {
	if (!isForced && Date.now() < viewAt) return;
	const begun = Date.now();
	const { interval = 0 } = view;
	await view.load();
	viewAt = Date.now() + Math.max(interval, Math.min(10 * (Date.now() - begun), REFRESH_MAXIMUM)) - REFRESH / 2;
}

// Fetches everything that is shown. An answer that comes after a change of view is dropped.
async function tick(isForced) {
	clearTimeout(timer);
	const mine = ++turn;
	const [stats, loaded] = await Promise.allSettled([get('stats'), loadView(isForced)]);
	if (mine !== turn) return;
	if (stats.reason?.status === 401 || loaded.reason?.status === 401) {
		await askToken();
		tick(true);
		return;
	}
	outage = stats.reason || null;
	viewError = loaded.reason || null;
	failures = outage ? failures + 1 : 0;
	if (!outage) {
		state.stats = stats.value;
		updatedAt = Date.now();
	}
	const delay = Math.min(REFRESH * 2 ** failures, REFRESH_MAXIMUM);
	nextAt = Date.now() + delay;
	draw();
	settlePlace();
	if (!document.hidden && !isPaused) timer = setTimeout(tick, delay);
}

function refresh() {
	tick(true);
}

function setPaused(value) {
	isPaused = value;
	remember('tab', 'paused', isPaused && 'on');
	if (isPaused) clearTimeout(timer);
	else refresh();
	draw();
}

const rows = () => [...main.querySelectorAll('[data-row]')];
const focusedRow = () => document.activeElement?.closest?.('[data-row]');

function keepPlace() {
	places.set(route.hash, { row: focusedRow()?.dataset.row, top: scrollY });
}

function settlePlace() {
	if (!wanted) return;
	const { row, top } = wanted;
	wanted = null;
	rows().find((one) => one.dataset.row === row)?.querySelector('.row-link')?.focus({ preventScroll: true });
	scrollTo(0, top);
}

// Shows what the address says.
function show() {
	const before = view;
	const next = { ...parseRoute(location.hash), hash: location.hash };
	const isSame = before && next.path.join('/') === route.path.join('/');
	if (next.hash === route?.hash) return;
	route = next;
	view = viewFor(route);
	viewError = null;
	hideTip();
	document.title = `${view.title} · Postroom`;
	if (isSame) {
		view.adopt?.(before);
	} else if (before) {
		main.replaceChildren();
		scrollTo(0, 0);
		wanted = places.get(route.hash);
		if (!wanted) $('title').focus({ preventScroll: true });
	}
	draw();
	refresh();
}

function focusRow(step) {
	const all = rows().filter((row) => row.querySelector('a, [tabindex]'));
	const at = all.indexOf(focusedRow());
	const row = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + step))];
	row?.querySelector('.row-link, a, [tabindex]').focus();
	row?.scrollIntoView({ block: 'nearest' });
}

// Back to the list that led here, with its filters; else to the whole list.
function goUp() {
	if (history.state?.fromList) history.back();
	else if (view.up) navigate(view.up);
}

const click = (selector, within = main) => within?.querySelector(selector)?.click();
const GO = { o: NAVIGATION.overview[1], m: NAVIGATION.messages[1], i: address(['messages', 'inbox']), d: NAVIGATION.dead[1], w: NAVIGATION.workers[1] };
const PRESS = {
	j: () => focusRow(1),
	k: () => focusRow(-1),
	x: () => click('[data-select]', focusedRow()),
	r: () => view.act?.('retry', focusedRow()?.dataset.row),
	d: () => view.act?.('delete', focusedRow()?.dataset.row),
	u: goUp,
	n: () => click('.pager button:last-child'),
	b: () => click('.pager button:first-child'),
	p: () => setPaused(!isPaused),
	'.': refresh,
	t: nextTheme,
	'?': helpDialog,
	'/': () => (main.querySelector('[data-first]') ? main.querySelector('[data-first]').focus() : navigate(GO.m)),
};
let goingUntil = 0; // the key after g names a view

function press(event) {
	const { key, target } = event;
	const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(target.nodeName) && target.type !== 'checkbox';
	if (key === 'Escape') {
		hideTip();
		if (isField && main.contains(target)) target.blur();
	}
	if (isField || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector('dialog[open]') || (!areKeysOn() && key !== '?')) return;
	const isGoing = Date.now() < goingUntil;
	goingUntil = !isGoing && key === 'g' ? Date.now() + 1500 : 0;
	if (isGoing && GO[key]) follow(GO[key]);
	else if (!isGoing && PRESS[key]) PRESS[key]();
	else return;
	event.preventDefault();
}

function follow(hash) {
	keepPlace();
	if (hash !== location.hash) navigate(hash, { data: route.path[0] === 'messages' && !view.up ? { fromList: true } : null });
}

document.addEventListener('click', (event) => {
	const link = event.target.closest?.('a[href^="#"]');
	if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || link.target) return;
	event.preventDefault();
	if (link.id === 'skip') main.focus();
	else if (link.hasAttribute('data-up')) goUp();
	else follow(link.getAttribute('href'));
});
document.addEventListener('keydown', press);
document.addEventListener('visibilitychange', () => {
	if (document.hidden) clearTimeout(timer);
	else if (!isPaused) refresh();
});
for (const type of ['popstate', 'hashchange']) window.addEventListener(type, show);
window.addEventListener('unhandledrejection', ({ reason }) => toast(`Unexpected error: ${reason?.message || reason}`, 'bad'));
setInterval(() => {
	if (document.hidden) return;
	drawBar();
	for (const time of document.querySelectorAll('time')) {
		const words = ago(time.dateTime);
		if (time.textContent !== words) time.textContent = words;
	}
}, 1000);
Object.assign(state, { refresh, redraw: draw, show });
watchTips();
if (!location.hash) history.replaceState(null, '', address(['overview']));
show();
