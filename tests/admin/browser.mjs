// SPDX-License-Identifier: Apache-2.0
// What the checks of the dashboard share: pages, conditions, axe, screenshots.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';

const [, , home, screenshots] = process.argv;
const require = createRequire(`${home}/`);
export const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const PATIENCE = 120000;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export const say = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);
export async function hear() {
	const { value, done } = await lines.next();
	if (done) throw new Error('the tests have gone');
	return JSON.parse(value);
}
export async function ask(what, details = {}) {
	say({ ask: what, ...details });
	return hear();
}

export async function until(condition, what) {
	const deadline = Date.now() + PATIENCE;
	for (;;) {
		const value = await condition();
		if (value) return value;
		assert.ok(Date.now() < deadline, `timed out waiting for ${what}`);
		await new Promise((resolve) => setTimeout(resolve, 30));
	}
}

export class Tester {
	constructor(context, request) {
		Object.assign(this, { context, base: request.base, request, problems: [] });
	}

	async open(hash = '', options = {}) {
		const page = await this.context.newPage();
		page.setDefaultTimeout(PATIENCE);
		page.on('pageerror', (error) => this.problems.push(`page error: ${error.stack}`));
		page.on('console', (message) => {
			if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) this.problems.push(`console: ${message.text()}`);
		});
		if (options.size) await page.setViewportSize(options.size);
		await page.goto(this.base + hash);
		return page;
	}

	async api(path, options = {}) {
		const headers = this.request.token ? { Authorization: `Bearer ${this.request.token}` } : {};
		return (await fetch(`${this.base}api/v1/${path}`, { headers, ...options })).json();
	}

	async shot(page, name) {
		if (!screenshots) return;
		mkdirSync(screenshots, { recursive: true });
		await page.evaluate(() => document.fonts.ready);
		await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: false });
	}

	async accessible(page, what) {
		await page.evaluate(axe);
		const found = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
		assert.deepEqual(found.violations.map((one) => `${what}: ${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.any.map((any) => any.message).join(' ')}`).join(' | ')}`), []);
	}

	async fits(page, what) {
		const wide = await page.evaluate(() => {
			const limit = document.documentElement.clientWidth;
			if (document.documentElement.scrollWidth <= limit) return [];
			return [...document.querySelectorAll('body *')].filter((node) => node.getBoundingClientRect().right > limit + 1).slice(0, 5)
				.map((node) => `${node.nodeName}.${node.getAttribute('class')}`);
		});
		assert.deepEqual(wide, [], `${what} is wider than the window`);
	}
}

export const row = (page, text) => page.locator('[data-row]', { hasText: text });
export const button = (scope, name) => scope.getByRole('button', { name, exact: true });
export const field = (page, name) => page.locator(`.filters input[name=${name}]`);
const total = (page) => page.locator('[data-total]').getAttribute('data-total').then(Number);
export async function totalIs(page, expected) {
	await until(async () => await page.locator('[data-total]').count() && await total(page) === expected, `${expected} messages`);
}
export const VIEWS = { overview: '#/overview', messages: '#/messages/outbox', inbox: '#/messages/inbox', dead: '#/dead/outbox', workers: '#/workers' };
