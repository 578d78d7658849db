// SPDX-License-Identifier: Apache-2.0
// Pieces that several views show, and dialogs.
import { recall, remember } from './core.js';
import { $, h, icon, render } from './dom.js';
import { NONE, ago, clock, now, shorten, visible } from './format.js';

const STATUS = {
	pending: ['neutral', 'circle'],
	scheduled: ['neutral', 'clock'],
	retrying: ['warn', 'retry'],
	processing: ['accent', 'half', 'in flight'],
	active: ['accent', 'half', 'in flight'],
	delivered: ['ok', 'check'],
	completed: ['ok', 'check'],
	dead: ['bad', 'cross'],
};

export const pill = (tone, iconName, text) => h(`span.pill.${tone}`, icon(iconName), h('span', text));

export function effectiveStatus(row) {
	if (row.status !== 'pending') return row.status;
	if (row.attempts > 0) return 'retrying';
	return Date.parse(row.next_attempt_at) > now() ? 'scheduled' : 'pending';
}

export function statusPill(row) {
	const status = effectiveStatus(row);
	const [tone, iconName, text = status] = STATUS[status] || ['neutral', 'info'];
	return pill(tone, iconName, text);
}

export const isFinished = (row) => /^(delivered|completed|dead)$/.test(row.status);

const none = () => h('span.faint', NONE);
export const value = (text, tag = 'span.value') => (text || text === 0 ? h(tag, visible(text)) : none());

// "3 min ago"; the exact time appears on hover and focus. app.js keeps the words current.
export const when = (time) => (time ? h('time', { datetime: time, tip: clock(time) }, ago(time)) : none());

export const leaseEnds = ({ locked_until: time }) => [Date.parse(time) < now() ? ' ended ' : ' ends ', when(time)];

// One line; the rest appears on hover and on focus.
export function clip(text, { limit = 600, focusable, tag = 'span.clip' } = {}) {
	return text ? h(tag, { tip: 'clipped', tabindex: focusable && '0' }, shorten(visible(text), limit)) : none();
}

export const number = (text, tone) => h(`span.number.${text === '0' || text === NONE ? 'faint' : tone || ''}`, text);
export const empty = (title, text, iconName = 'check') => h('div.empty', icon(iconName), h('strong', title), h('p', text));
export const loading = (error) => !error && h('p.loading', 'Loading…');
export const button = (iconName, text, onclick, attributes = {}) => h('button', { onclick, ...attributes }, iconName && icon(iconName), text);
export const link = (text, onclick) => h('button.link', { onclick }, text);
export const card = (title, aside, ...content) => h('section.card', h('div.card-head', h('h2', title), aside), content);
export const aside = (text) => h('span.aside', text);
export const pair = (name, ...shown) => h('div', h('dt', name), h('dd', shown));

// columns: 'Label:class' or an element; rows: [key, cells, attributes].
export function table(label, columns, rows, classes) {
	const heads = columns.map((column) => (column instanceof Node ? [column, 'tick'] : column.split(':')));
	return h('div.scroll', h('table', { class: classes, label, role: 'table' },
		h('thead', h('tr', { role: 'row' }, heads.map(([text, name]) =>
			(text instanceof Node ? h('td', { class: name, role: 'cell' }, text) : h('th', { scope: 'col', role: 'columnheader', class: name }, text))))),
		h('tbody', rows.map(([key, cells, attributes]) =>
			h('tr', { key, row: key, role: 'row', ...attributes }, cells.map((cell, at) =>
				h('td', { role: 'cell', class: heads[at][1], 'data-label': heads[at][1] !== 'tick' && heads[at][0] }, cell)))))));
}

export function toast(text, tone = 'ok') {
	const node = h('div.toast', icon(tone === 'ok' ? 'check' : 'alert'), h('span', text));
	$('toasts').append(node);
	setTimeout(() => node.remove(), 6000);
}

export async function copyText(text, what) {
	try {
		await navigator.clipboard.writeText(text);
	} catch { // without TLS, browsers offer only this
		const area = h('textarea.away', { value: text });
		document.body.append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
	}
	toast(`Copied ${what}`);
}

export const copyIcon = (text, what) => button('copy', '', () => copyText(text, what), { class: 'quiet square', label: `Copy ${what}`, tip: `Copy ${what}` });

export function download(name, type, content) {
	const anchor = h('a', { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
	anchor.click();
	setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}

let hiding;

function showTip(element) {
	const tip = $('tip');
	const isClip = element.dataset.tip === 'clipped';
	if (isClip && element.scrollWidth <= element.clientWidth + 1 && element.scrollHeight <= element.clientHeight + 2) return;
	clearTimeout(hiding);
	tip.textContent = isClip ? element.textContent : element.dataset.tip;
	tip.hidden = false;
	const box = element.getBoundingClientRect();
	const isBelow = box.bottom + tip.offsetHeight + 8 < innerHeight;
	tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
	tip.style.top = `${Math.max(8, isBelow ? box.bottom + 6 : box.top - tip.offsetHeight - 6)}px`;
}

export const hideTip = () => { $('tip').hidden = true; };

export function watchTips() {
	const enter = ({ target }) => {
		const element = target.closest?.('[data-tip]');
		if (element) showTip(element);
		else if (target.id === 'tip') clearTimeout(hiding);
	};
	const leave = () => {
		clearTimeout(hiding);
		hiding = setTimeout(hideTip, 120);
	};
	for (const type of ['pointerover', 'focusin']) document.addEventListener(type, enter);
	for (const type of ['pointerout', 'focusout']) document.addEventListener(type, leave);
	document.addEventListener('scroll', hideTip, true);
}

// content(dialog) returns what is inside; dialog.redraw() shows it again. The browser moves the
// focus into the dialog, and back when it closes.
export function openDialog(title, content, { canClose = () => true, onClose } = {}) {
	const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' });
	dialog.redraw = () => render(dialog, h('div.dialog-head', h('h2', { id: 'dialog-title' }, title),
		canClose() && button('cross', '', () => dialog.close(), { class: 'quiet square', label: 'Close dialog' })), content(dialog));
	dialog.addEventListener('cancel', (event) => canClose() || event.preventDefault());
	// Chromium closes on a second Escape, whatever the first one was answered.
	dialog.addEventListener('keydown', (event) => event.key === 'Escape' && !canClose() && event.preventDefault());
	dialog.addEventListener('close', () => {
		dialog.remove();
		onClose?.();
	});
	document.body.append(dialog);
	dialog.redraw();
	dialog.showModal();
	return dialog;
}

const KEYS = [
	['Go to', 'g o:Overview', 'g m:Messages', 'g i:Inbox', 'g d:Dead letters', 'g w:Workers and database'],
	['Lists', 'j:Next row', 'k:Previous row', 'Enter:Open', 'x:Select', '/:Filter', 'n:Older page', 'b:Newest page'],
	['Act', 'r:Retry', 'd:Delete', 'u:Back to the list'],
	['Page', 'p:Pause or resume', '.:Refresh now', 't:Light, dark or system', '?:This help'],
];

export const areKeysOn = () => recall('all', 'keys') !== 'off';

export function helpDialog() {
	openDialog('Keyboard shortcuts', () => [
		h('div.keys', KEYS.map(([title, ...keys]) => h('section', h('h3', title), h('dl', keys.map((line) => {
			const [key, text] = line.split(':');
			return h('div', h('dt', key.split(' ').map((one) => h('kbd', one))), h('dd', text));
		}))))),
		h('label.dialog-foot', h('input', { type: 'checkbox', checked: areKeysOn(),
			onchange: ({ target }) => remember('all', 'keys', !target.checked && 'off') }), h('span.grow', 'Use single-key shortcuts'))]);
}

let asking = null;

// Resolves when a token was entered.
export function askToken() {
	const wasRejected = recall('tab', 'token');
	remember('tab', 'token', null);
	asking ||= new Promise((resolve) => {
		openDialog('Token', (dialog) => h('form', {
			onsubmit: (event) => {
				event.preventDefault();
				remember('tab', 'token', event.currentTarget.elements.token.value.trim());
				asking = null;
				dialog.close();
				resolve();
			},
		}, h('div.dialog-body',
			wasRejected && h('p.error-text', { role: 'alert' }, icon('alert'), 'The server rejected this token.'),
			h('p', 'This server asks for a token: ', h('code', 'admin.token'), ' or ', h('code', 'admin.read_token'),
				' of its configuration. It is kept for this tab only.'),
			h('label.field', h('span', 'Token'), h('input', { type: 'password', name: 'token', required: true, autofocus: true, autocomplete: 'current-password' }))),
		h('div.dialog-foot', h('button.primary', { type: 'submit' }, 'Continue'))), { canClose: () => false });
	});
	return asking;
}
