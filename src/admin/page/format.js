// SPDX-License-Identifier: Apache-2.0
// Numbers, times, sizes and JSON as people read them.

const NUMBER = new Intl.NumberFormat('en-US');
const DECIMAL = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });
export const CAP = 100000; // the server counts no further
export const NONE = '–';

let clockOffset = 0;

// The server's clock decides: ages must be right on a laptop whose clock is not.
export function setServerTime(date) {
	const offset = date - Date.now();
	if (offset) clockOffset = Math.abs(offset) < 3000 ? 0 : offset;
}

export const now = () => Date.now() + clockOffset;

// A sum of counts that end at the cap ends there too.
export const count = (value, isCapped) => (value == null ? NONE : NUMBER.format(isCapped ? Math.min(value, CAP) : value) + (isCapped && value >= CAP ? '+' : ''));
export const plural = (value, one, isCapped) => `${count(value, isCapped)} ${one}${value === 1 ? '' : 's'}`;

export function rate(value) {
	if (value == null) return NONE;
	if (value > 0 && value < 0.05) return '<0.1';
	return (value < 100 ? DECIMAL : NUMBER).format(value < 100 ? value : Math.round(value));
}

export function latency(seconds) {
	if (seconds == null) return NONE;
	if (seconds < 1) return `${DECIMAL.format(seconds * 1000)} ms`;
	return seconds < 120 ? `${DECIMAL.format(seconds)} s` : duration(seconds);
}

export function duration(seconds) {
	if (seconds == null) return NONE;
	const whole = Math.max(0, Math.floor(seconds));
	const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(whole / unit));
	if (whole < 60) return `${whole} s`;
	if (minutes < 10) return `${minutes} min ${whole % 60} s`;
	if (minutes < 60) return `${minutes} min`;
	return hours < 24 ? `${hours} h ${minutes % 60} min` : `${NUMBER.format(days)} d ${hours % 24} h`;
}

export function ago(time) {
	const seconds = (now() - Date.parse(time)) / 1000;
	if (!Number.isFinite(seconds)) return NONE;
	if (Math.abs(seconds) < 1) return 'now';
	const short = duration(Math.abs(seconds)).match(/^\S+ \S+/)[0];
	return seconds < 0 ? `in ${short}` : `${short} ago`;
}

// 2026-11-18 14:02:44.309, in the time zone of the browser.
export function clock(time) {
	const date = new Date(time);
	if (!time || Number.isNaN(date.getTime())) return NONE;
	return new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, -1).replace('T', ' ');
}

export function bytes(size) {
	if (size < 1024) return plural(size, 'byte');
	return size < 1048576 ? `${DECIMAL.format(size / 1024)} KiB` : `${DECIMAL.format(size / 1048576)} MiB`;
}

// Control and direction characters become visible in names and errors: they could make one value
// look like another.
export const visible = (text) => String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
	(character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

export const shorten = (text, limit) => (text.length > limit ? `${text.slice(0, limit).replace(/[\ud800-\udbff]$/, '')}…` : text);

// JSON as text. A payload is never parsed: 9007199254740993 and 1.10 must stay what they are.

// The position of the quote that ends the string beginning at start.
function stringEnd(json, start) {
	for (let at = start; ;) {
		at = json.indexOf('"', at + 1);
		if (at < 0) return json.length;
		let slashes = 0;
		while (json[at - 1 - slashes] === '\\') slashes++;
		if (slashes % 2 === 0) return at;
	}
}

// The position after the value that begins at start.
function valueEnd(json, start) {
	let depth = 0;
	for (let at = start; at < json.length; at++) {
		const character = json[at];
		if (character === '"') at = stringEnd(json, at);
		else if (depth === 0 && /[,}\]]/.test(character)) return at;
		else if (/[{[]/.test(character)) depth++;
		else if (/[}\]]/.test(character)) depth--;
	}
	return json.length;
}

// The members of an object, each as the text that was sent.
export function members(json) {
	const found = {};
	for (let at = json.indexOf('{') + 1; ;) {
		const start = json.indexOf('"', at);
		if (start < 0) return found;
		const colon = json.indexOf(':', stringEnd(json, start));
		const end = valueEnd(json, colon + 1);
		found[JSON.parse(json.slice(start, colon))] = json.slice(colon + 1, end).trim();
		if (json[end] !== ',') return found;
		at = end + 1;
	}
}

// The same text with line breaks and indentation.
export function indent(json) {
	let depth = 0;
	const line = () => `\n${'  '.repeat(Math.min(depth, 40))}`;
	return json.replace(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|\s+/g, (token) => {
		if (/^\s/.test(token)) return '';
		if (token.length > 1 || token[0] === '"') return token[0] === '"' ? token : token[0] + token.at(-1);
		if (/[{[]/.test(token)) depth++;
		else if (/[}\]]/.test(token)) depth--;
		else return token === ':' ? ': ' : token + line();
		return /[{[]/.test(token) ? token + line() : line() + token;
	});
}
