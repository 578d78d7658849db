// SPDX-License-Identifier: Apache-2.0
// A line chart of the last 15 minutes. The lines are stretched SVG; labels are HTML beside them, so
// that text keeps its size at any width. Arrow keys move the cursor.
import { state } from './core.js';
import { h, svg } from './dom.js';
import { clock, now } from './format.js';

const SPAN = 15 * 60 * 1000;
const cursors = new Map(); // by chart: where the reader points, 0 to 1

const isKnown = (point) => point.value != null;

// The smallest of 1, 2, 4, 6 times a power of ten that is not below the value.
function niceCeiling(value) {
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 4, 6, 10].map((step) => step * power).find((top) => top >= value * 0.999);
}

// A dashed line of zeros would look like an alarm: it is left out.
function linePath(points, spot, isDashed) {
	return points.map((point, at) => {
		const before = points[at - 1];
		const isZero = isDashed && !point.value;
		if (!isKnown(point)) return '';
		if (before && isKnown(before) && (before.value || !isZero)) return `L${spot(point)}`;
		return `M${spot(point)}${isZero ? '' : 'h0'}`;
	}).join('');
}

// A value without neighbors has no line.
function dotPath(points, spot) {
	return points.filter((point, at) => point.value && ![points[at - 1], points[at + 1]].some((other) => other && isKnown(other)))
		.map((point) => `M${spot(point)}h0`).join('');
}

function areaPath(points, spot) {
	const known = points.filter(isKnown);
	return known.length > 1 ? `${linePath(known, spot)}L${spot({ ...known.at(-1), value: 0 })}L${spot({ ...known[0], value: 0 })}Z` : '';
}

const swatch = ({ tone, dashed }) => h(`i.swatch.${tone}`, { class: dashed && 'dashed' });

function cursor(id, series, start, format) {
	if (!cursors.has(id)) return null;
	const time = start + cursors.get(id) * SPAN;
	const nearest = series.map(({ points }) => points.reduce((best, point) => (Math.abs(point.at - time) < Math.abs(best.at - time) ? point : best), { at: 0 }));
	if (!nearest[0].at) return null;
	const part = Math.max(0, (nearest[0].at - start) / SPAN);
	const style = { left: `${part * 100}%` };
	return [h('div.cursor', { style }), h('div.readout', { class: part > 0.5 && 'before', style }, h('strong', clock(nearest[0].at).slice(11, 19)),
		series.map((one, at) => h('span', swatch(one), `${one.label} ${format(nearest[at].value)}`)))];
}

// series: [{ label, tone, dashed, area, points: [{ at, value }], current }]
export function chart({ id, label, series, format, minimum }) {
	const start = now() - SPAN;
	const shown = series.map((one) => ({ ...one, points: one.points.filter(({ at }) => at >= start) }));
	const known = shown.flatMap(({ points }) => points.filter(isKnown));
	const top = niceCeiling(Math.max(minimum, ...known.map(({ value }) => value)));
	const spot = ({ at, value }) => `${((at - start) / SPAN * 1000).toFixed(1)} ${(100 - value / top * 100).toFixed(1)}`;
	const point = (part) => {
		if (part === null) cursors.delete(id);
		else cursors.set(id, Math.max(0, Math.min(1, part)));
		state.redraw();
	};
	const grid = (x1, x2, y1, y2) => svg('line.grid', { x1, x2, y1, y2 });
	const words = (...texts) => texts.map((text) => h('span', text));
	return h('figure.chart', h('figcaption.legend', series.map((one) => h('span', swatch(one), one.label, h('strong', { class: one.tone === 'bad' && /[1-9]/.test(one.current) && 'number bad' }, one.current)))), h('div.axes',
		h('div.y-axis', { 'aria-hidden': 'true' }, words(format(top), format(top / 2), format(0))),
		h('div.plot', { tabindex: '0', role: 'img', label: `${label}, last 15 minutes. ${series.map((one) => `${one.label}: ${one.current}`).join(', ')}. Arrow keys read values.`,
			onpointermove: ({ currentTarget, clientX }) => {
				const box = currentTarget.getBoundingClientRect();
				point((clientX - box.left) / box.width);
			},
			onpointerleave: () => point(null),
			onblur: () => point(null),
			onkeydown: (event) => {
				const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
				if (!step) return;
				event.preventDefault();
				point((cursors.get(id) ?? 1) + step / 90);
			} },
		svg('svg', { viewBox: '0 0 1000 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
			[0, 50, 100].map((y) => grid(0, 1000, y, y)), [200, 400, 600, 800].map((x) => grid(x, x, 0, 100)),
			shown.map((one) => [one.area && svg(`path.area.${one.tone}`, { d: areaPath(one.points, spot) }),
				svg(`path.${one.tone}`, { class: one.dashed && 'dashed', d: linePath(one.points, spot, one.dashed) }), svg(`path.dots.${one.tone}`, { d: dotPath(one.points, spot) })])),
		cursor(id, shown, start, format), !known.length && h('p.no-data', h('span', series[0].points.length ? 'No deliveries in the last 15 minutes.' : 'Waiting for the first sample…'))),
		h('div.x-axis', { 'aria-hidden': 'true' }, ['15 min', '12', '9', '6', '3', 'now'].map((text, at) => h('span', { style: { left: `${at * 20}%` } }, text)))));
}
