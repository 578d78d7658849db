// SPDX-License-Identifier: Apache-2.0
// h() builds elements; render() brings them into the page and changes only what differs, so that
// focus, scroll positions and selections survive a refresh. Text becomes text nodes, never HTML.

const SVG = 'http://www.w3.org/2000/svg';
const HANDLERS = ['onclick', 'onchange', 'oninput', 'onsubmit', 'onkeydown', 'onblur', 'onpointermove', 'onpointerleave'];

const ALIAS = { label: 'aria-label', tip: 'data-tip', current: 'aria-current', row: 'data-row' };
const isNone = (value) => value == null || value === false;

function append(element, children) {
	for (const child of children.flat(9)) if (!isNone(child)) element.append(child);
}

function build(element, classes, rest) {
	const isGiven = rest[0]?.constructor === Object;
	const { class: more, ...attributes } = isGiven ? rest.shift() : {};
	if (more) classes.push(more);
	if (classes.length) element.setAttribute('class', classes.join(' '));
	if (element.nodeName === 'BUTTON') attributes.type ??= 'button';
	append(element, rest);
	for (const [name, value] of Object.entries(attributes)) {
		if (isNone(value)) continue;
		if (name === 'key') element.prKey = value;
		else if (name === 'style') Object.assign(element.style, value);
		else if (typeof value === 'function' || /^(value|checked|indeterminate)$/.test(name)) element[name] = value;
		else element.setAttribute(ALIAS[name] || name, value === true ? '' : value);
	}
	return element;
}

const maker = (create) => (tag, ...rest) => {
	const [name, ...classes] = tag.split('.');
	return build(create(name), classes, rest);
};

// h('button.quiet', { onclick }, 'text', …): attributes may be left out.
export const h = maker((name) => document.createElement(name));
export const svg = maker((name) => document.createElementNS(SVG, name));
export const $ = (id) => document.getElementById(id);

function isSame(before, after) {
	return before.nodeType === after.nodeType && before.nodeName === after.nodeName &&
		before.prKey === after.prKey;
}

function patchAttributes(before, after) {
	for (const { name } of [...before.attributes]) {
		if (name === 'style' || (name === 'open' && before.nodeName === 'DETAILS')) continue;
		if (!after.hasAttribute(name)) before.removeAttribute(name);
	}
	for (const { name, value } of after.attributes) {
		// A style attribute would need unsafe-inline; the object model does not.
		if (name !== 'style' && before.getAttribute(name) !== value) before.setAttribute(name, value);
	}
	if (before.style.cssText !== after.style.cssText) before.style.cssText = after.style.cssText;
	for (const name of HANDLERS) {
		if (before[name] !== after[name]) before[name] = after[name];
	}
}

function patchField(before, after) {
	if (before.checked !== after.checked) before.checked = after.checked;
	if (before.indeterminate !== after.indeterminate) before.indeterminate = after.indeterminate;
	const isEdited = document.activeElement === before && before.nodeName !== 'SELECT';
	if (!isEdited && before.value !== after.value) before.value = after.value;
}

function patch(before, after) {
	if (before.nodeType !== Node.ELEMENT_NODE) {
		if (before.data !== after.data) before.data = after.data;
		return;
	}
	patchAttributes(before, after);
	patchChildren(before, after);
	if (/^(INPUT|SELECT|TEXTAREA)$/.test(before.nodeName)) patchField(before, after);
}

function patchChildren(before, after) {
	const wanted = [...after.childNodes];
	const keys = new Set(wanted.map((node) => node.prKey));
	const keyed = new Map();
	for (const node of [...before.childNodes]) {
		if (node.prKey === undefined) continue;
		if (keys.has(node.prKey)) keyed.set(node.prKey, node);
		else node.remove();
	}
	let at = before.firstChild;
	for (const next of wanted) {
		const isKeyed = next.prKey !== undefined;
		const found = isKeyed ? keyed.get(next.prKey) : at;
		if (found && isSame(found, next)) {
			if (found === at) at = at.nextSibling;
			else before.insertBefore(found, at);
			patch(found, next);
		} else if (found && found === at && !isKeyed && at.prKey === undefined) {
			at = at.nextSibling;
			before.replaceChild(next, found);
		} else {
			before.insertBefore(next, at);
		}
	}
	while (before.childNodes.length > wanted.length) before.lastChild.remove();
}

// Makes the children of root equal to the given ones.
export function render(root, ...children) {
	const after = document.createElement(root.nodeName);
	append(after, children);
	patchChildren(root, after);
}

const ICONS = {
	mark: 'M3 6h18v13H3zM3.5 6.5 12 13.5l8.5-7',
	overview: 'M3 13h4l3-8 4 14 3-9 1.5 3H21',
	messages: 'M4 5h16M4 10h16M4 15h16M4 20h10',
	dead: 'M4 4h16v6H4zM6 10v10h12V10M10 14h4',
	workers: 'M4 6c0-4 16-4 16 0s-16 4-16 0zv12c0 4 16 4 16 0V6M4 12c0 4 16 4 16 0',
	retry: 'M20 11a8 8 0 1 0-2.3 6.7M20 4v7h-7',
	trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13',
	copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
	download: 'M12 4v11M7 10.5l5 5 5-5M4 20h16',
	check: 'M5 12.5l4.5 4.5L19 7.5',
	alert: 'M12 4 2.5 20h19zM12 10v5M12 17.5v.5',
	cross: 'M6 6l12 12M18 6 6 18',
	pause: 'M8 5v14M16 5v14',
	play: 'M7 4.5 19 12 7 19.5z',
	clock: 'M12 3a9 9 0 1 0 .01 0zM12 7v5l3.5 2',
	circle: 'M12 5a7 7 0 1 0 .01 0z',
	left: 'M15 5l-7 7 7 7',
	right: 'M9 5l7 7-7 7',
	search: 'M11 4a7 7 0 1 0 .01 0zM16 16l5 5',
	lock: 'M5 11h14v10H5zM8 11V7a4 4 0 0 1 8 0v4',
	hidden: 'M4 4l16 16M2 12c4-8 16-8 20 0-4 8-16 8-20 0z',
	half: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
	keyboard: 'M3 6h18v12H3zM7 10h10M8 14h8',
	stop: 'M6 6h12v12H6z',
	key: 'M14.5 3.5a6 6 0 1 0 .01 0zM10 14l-7 7M5 19l2 2',
	info: 'M12 3a9 9 0 1 0 .01 0zM12 11v5M12 7.5v.5',
};

export function icon(name) {
	return svg('svg.icon', { viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false' },
		svg('path', { d: ICONS[name] }));
}
