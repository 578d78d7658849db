// SPDX-License-Identifier: Apache-2.0
// The admin API, the addresses of the views, and what all views share.
import { setServerTime } from './format.js';

// Of app.js: refresh() fetches and shows, redraw() shows again what is known, show() follows the
// address.
export const state = { stats: null };

export const isReadOnly = () => !state.stats || state.stats.read_only;

const failure = (status, message) => Object.assign(new Error(message), { status });

// Settings; a browser may refuse to keep them. `tab` ends with the tab.
const storage = (where) => (where === 'tab' ? sessionStorage : localStorage);

export function remember(where, name, value) {
	try {
		storage(where)[`postroom.${name}`] = value || '';
	} catch { /* until the page is closed */ }
}

export function recall(where, name) {
	try {
		return storage(where)[`postroom.${name}`];
	} catch {
		return null;
	}
}

// Returns the text of the answer. Addresses are relative to the page: any proxy path works.
export async function text(path, { method = 'GET', body, timeout = 15000 } = {}) {
	const headers = { Accept: 'application/json' };
	const token = recall('tab', 'token');
	if (token) headers.Authorization = `Bearer ${token}`;
	if (body) headers['Content-Type'] = 'application/json';
	let response;
	try {
		response = await fetch(`api/v1/${path}`, { method, headers, cache: 'no-store', body: body && JSON.stringify(body),
			signal: AbortSignal.timeout(timeout) });
	} catch (error) {
		throw failure(0, error.name === 'TimeoutError' ? `The server did not answer within ${timeout / 1000} s` : 'The server cannot be reached');
	}
	if (!response.ok) {
		const { error } = await response.json().catch(() => ({}));
		throw failure(response.status, error?.message || `HTTP ${response.status} ${response.statusText}`);
	}
	setServerTime(Date.parse(response.headers.get('Date')));
	return response.text();
}

export const get = async (path, timeout) => JSON.parse(await text(path, { timeout }));
export const send = async (method, path, body) => JSON.parse(await text(path, { method, body, timeout: 60000 }));

// A query string of the parameters that are not empty.
export function query(params) {
	const given = Object.entries(params).filter(([, value]) => value);
	return given.length ? `?${new URLSearchParams(given)}` : '';
}

// #/messages/outbox?status=dead is { path: ['messages', 'outbox'], params: { status: 'dead' } }.
export function parseRoute(hash) {
	const [path, search = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
	const decode = (part) => {
		try {
			return decodeURIComponent(part);
		} catch {
			return part;
		}
	};
	return { path: path.split('/').filter(Boolean).map(decode), params: Object.fromEntries(new URLSearchParams(search)) };
}

export const address = (path, params = {}) => `#/${path.map(encodeURIComponent).join('/')}${query(params)}`;

export function navigate(hash, { replace = false, data = null } = {}) {
	history[replace ? 'replaceState' : 'pushState'](data, '', hash);
	state.show();
}

const identity = (table, row) => (table === 'inbox' ? ['inbox', row.handler, row.id] : ['outbox', row.id]);
export const messageAddress = (table, row) => address(['messages', ...identity(table, row)]);
export const messagePath = (table, row) => identity(table, row).map(encodeURIComponent).join('/');
