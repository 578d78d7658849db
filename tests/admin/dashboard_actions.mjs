// SPDX-License-Identifier: Apache-2.0
// Checks of what people do with the page, and of servers that refuse or go down.
import assert from 'node:assert/strict';
import { ask, button, field, row, totalIs, until } from './browser.mjs';

export const checks = {
	async actions(t) {
		const { retried, deleted, job } = t.request.ids;
		const page = await t.open(`#/messages/outbox/${retried}`);
		await button(page, 'Retry').click();
		await page.getByText('The message is pending again.').waitFor();
		assert.notEqual((await t.api(`outbox/${retried}`)).status, 'dead');
		await button(page, 'Retry').waitFor({ state: 'detached' });
		await page.goto(`${t.base}#/messages/outbox/${deleted}`);
		await button(page, 'Delete…').click();
		await page.getByRole('dialog').getByText('This cannot be undone.').waitFor();
		await button(page, 'Cancel').click();
		assert.equal((await t.api(`outbox/${deleted}`)).id, deleted);
		await button(page, 'Delete…').click();
		await page.locator('[data-run]').click();
		await button(page.getByRole('dialog'), 'Close').last().click();
		assert.equal((await t.api(`outbox/${deleted}`)).error.code, 'not_found');
		await until(() => page.url().endsWith('#/messages/outbox'), 'the list');
		await page.goto(`${t.base}#/messages/inbox/mail/${job}`);
		await button(page, 'Retry').click();
		await page.getByText('The message is pending again.').first().waitFor();
		await until(async () => (await t.api(`inbox/mail/${job}`)).status !== 'dead', 'the retried job');
	},

	async selection(t) {
		const page = await t.open('#/messages/outbox?status=dead&topic=mail.*');
		await totalIs(page, 3);
		await page.getByLabel('Select all on this page').check();
		await page.getByText('3 messages selected').waitFor();
		await page.locator('[data-select]').first().uncheck();
		await button(page, 'Retry selected').click();
		assert.equal(await page.locator('[data-matched]').textContent(), '2');
		await page.locator('[data-run]').click();
		await page.locator('[data-ended="2"]').waitFor();
		await button(page.getByRole('dialog'), 'Close').last().click();
		await totalIs(page, 1);
		assert.ok(page.url().includes('topic=mail'), 'the filter survives the action');
		await button(page, 'Delete all matching…').click();
		await page.locator('[data-matched="1"]').waitFor();
		await page.locator('[data-run]').click();
		await page.locator('[data-ended="1"]').waitFor();
		await button(page.getByRole('dialog'), 'Close').last().click();
		await totalIs(page, 0);
		assert.equal(await page.getByRole('button', { name: /all matching/ }).count(), 0, 'nothing matches');
	},

	async groups(t) {
		const { dead } = t.request.counts;
		const page = await t.open('#/dead/outbox');
		await totalIs(page, dead);
		const many = row(page, 'HTTP 422: bad order');
		assert.equal(await many.count(), 1, 'one cause, whatever the number in it');
		assert.equal(await many.locator('strong').first().textContent(), '130');
		await field(page, 'topic').fill('orders.*');
		await page.getByRole('button', { name: 'Delete…' }).first().waitFor();
		await many.getByRole('button', { name: 'Delete…' }).click();
		await page.locator('[data-matched="130"]').waitFor();
		const run = page.locator('[data-run]');
		assert.ok(await run.isDisabled(), 'the number must be typed');
		await page.locator('input[name=confirm]').fill('13');
		assert.ok(await run.isDisabled());
		await page.locator('input[name=confirm]').fill('130');
		await run.click();
		await page.locator('[data-ended="130"]').waitFor();
		await button(page.getByRole('dialog'), 'Close').last().click();
		await until(async () => await many.count() === 0, 'the group to go');
		assert.equal((await t.api('outbox?status=dead')).total, dead - 130);
		await page.goto(`${t.base}#/dead/inbox`);
		await row(page, 'SMTP 550').getByRole('button', { name: 'Retry…' }).click();
		await page.locator('[data-matched="3"]').waitFor();
		await page.locator('[data-run]').click();
		await page.locator('[data-ended="3"]').waitFor();
		await button(page.getByRole('dialog'), 'Close').last().click();
		await page.getByText('Nothing is wrong').waitFor();
	},

	async bulk(t) {
		const page = await t.open('#/dead/outbox');
		await totalIs(page, 5000);
		const retry = row(page, 'broken').getByRole('button', { name: 'Retry…' });
		await retry.click();
		await page.locator('[data-matched="5000"]').waitFor();
		await page.locator('input[name=rate]').fill('100');
		await page.locator('[data-run]').click();
		await page.locator('[data-done="100"]').waitFor();
		const [, done, left] = (await page.getByRole('dialog').locator('p').textContent()).replaceAll(',', '').match(/^(\d+) of 5000 · about (\d+) s left$/);
		assert.equal(Number(left), Math.floor((5000 - done) / 100), 'the rate gives the time that is left');
		await page.keyboard.press('Escape');
		assert.equal(await page.getByRole('progressbar').count(), 1, 'Escape does not close it while it runs');
		await page.locator('[data-stop]').click();
		const ended = page.locator('[data-ended]');
		await ended.waitFor();
		const first = Number(await ended.getAttribute('data-ended'));
		assert.ok(first >= 100 && first < 5000, `${first} before the stop`);
		await button(page.getByRole('dialog'), 'Close').last().click();
		await totalIs(page, 5000 - first);
		assert.equal((await t.api('outbox?status=dead')).total, 5000 - first);
		await retry.click();
		await page.locator(`[data-matched="${5000 - first}"]`).waitFor();
		const seen = page.evaluate(() => new Promise((resolve) => {
			const values = new Set();
			const watch = () => {
				const bar = document.querySelector('[role=progressbar]');
				if (bar) values.add(Number(bar.getAttribute('aria-valuenow')));
				if (document.querySelector('[data-ended]')) resolve([...values]);
				else requestAnimationFrame(watch);
			};
			watch();
		}));
		await page.locator('[data-run]').click();
		assert.ok((await seen).length > 3, 'progress moves');
		assert.equal(Number(await ended.getAttribute('data-ended')), 5000 - first);
		await button(page.getByRole('dialog'), 'Close').last().click();
		await page.getByText('Nothing is wrong').waitFor();
		assert.equal((await t.api('outbox?status=dead')).total, 0);
	},

	async tabs(t) {
		const id = t.request.ids.retried;
		const one = await t.open(`#/messages/outbox/${id}`);
		const two = await t.open('#/messages/outbox?status=dead');
		await totalIs(two, t.request.counts.dead);
		await one.bringToFront();
		await button(one, 'Retry').click();
		await one.getByText('The message is pending again.').waitFor();
		await two.bringToFront();
		await totalIs(two, t.request.counts.dead - 1);
		// A retry of what another tab has already changed says so.
		await two.goto(`${t.base}#/messages/outbox/${t.request.ids.deleted}`);
		await button(two, 'Retry').waitFor();
		await button(two, 'Pause').click();
		await one.bringToFront();
		await one.goto(`${t.base}#/messages/outbox/${t.request.ids.deleted}`);
		await button(one, 'Delete…').click();
		await one.locator('[data-run]').click();
		await one.locator('[data-ended="1"]').waitFor();
		await two.bringToFront();
		await button(two, 'Retry').click();
		await two.getByText(/Cannot retry:/).waitFor();
	},

	async keyboard(t) {
		const page = await t.open();
		const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
		await page.locator('[data-health]').waitFor();
		await press('Tab');
		assert.equal(await page.evaluate(() => document.activeElement.id), 'skip');
		await press('Enter');
		assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
		await press('g', 'd');
		await totalIs(page, t.request.counts.dead);
		await press('g', 'w');
		await page.getByRole('heading', { name: 'Sinks' }).waitFor();
		await press('g', 'i');
		await until(() => page.url().includes('#/messages/inbox'), 'the inbox');
		await press('g', 'm');
		await totalIs(page, t.request.counts.all);
		// The header stays at the top: rows must not end up behind it.
		const focusedBox = () => page.evaluate(() => {
			const { top, bottom } = document.activeElement.closest('[data-row]').getBoundingClientRect();
			return { isVisible: top >= document.getElementById('bar').getBoundingClientRect().bottom && bottom <= innerHeight, top };
		});
		for (const key of [...Array(30).fill('j'), ...Array(25).fill('k')]) {
			await press(key);
			const { isVisible, top } = await focusedBox();
			assert.ok(isVisible, `the focused row is at ${top} after ${key}`);
		}
		await press('/');
		await page.keyboard.type('mail.*');
		await totalIs(page, 3);
		await press('Escape', 'j', 'j', 'k', 'j');
		const focused = () => page.evaluate(() => document.activeElement.closest('[data-row]')?.dataset.row);
		const ids = await page.locator('[data-row]').evaluateAll((rows) => rows.map((one) => one.dataset.row));
		assert.equal(await focused(), ids[1]);
		await press('x');
		await page.getByText('1 message selected').waitFor();
		assert.equal(await focused(), ids[1]);
		await press('k', 'x', 'r');
		await page.locator('[data-matched="2"]').waitFor();
		await press('Enter');
		await page.locator('[data-ended="2"]').waitFor();
		await press('Enter');
		await page.getByRole('dialog').waitFor({ state: 'detached' });
		await until(async () => (await t.api(`outbox/${ids[0]}`)).status !== 'dead', 'the retried message');
		await press('g', 'm');
		await totalIs(page, t.request.counts.all);
		await page.goto(`${t.base}#/messages/outbox?topic=mail.*&status=dead`);
		await totalIs(page, 1);
		await press('j', 'Enter');
		await page.getByRole('heading', { name: 'Why it is dead' }).waitFor();
		await press('u');
		await totalIs(page, 1);
		assert.ok(page.url().includes('status=dead'), 'back to the same list');
		await until(async () => await focused() === ids[2], 'the focus on the same row');
		await press('Enter');
		await page.getByRole('heading', { name: 'Why it is dead' }).waitFor();
		await press('d');
		await page.getByRole('dialog').waitFor();
		await press('Enter');
		await page.locator('[data-ended="1"]').waitFor();
		await press('Enter');
		await until(async () => (await t.api(`outbox/${ids[2]}`)).error, 'the deletion');
		await press('?');
		await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
		await press('Escape');
		await page.getByRole('dialog').waitFor({ state: 'detached' });
		await press('t');
		assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
		await press('p');
		await page.getByText(/^Paused/).waitFor();
		await press('p');
		await page.getByText('Live', { exact: true }).waitFor();
		await press('?');
		await page.getByLabel('Use single-key shortcuts').uncheck();
		await press('Escape');
		await press('t');
		assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light', 'shortcuts can be switched off');
	},

	async readOnly(t) {
		const page = await t.open('#/messages/outbox?status=dead');
		await totalIs(page, t.request.counts.dead);
		await page.locator('[data-mode=read-only]').waitFor();
		const changing = page.getByRole('button', { name: /Retry|Delete/ });
		assert.equal(await changing.count(), 0);
		assert.equal(await page.getByRole('checkbox').count(), 0);
		await page.keyboard.press('j');
		await page.keyboard.press('d');
		assert.equal(await page.getByRole('dialog').count(), 0);
		await page.locator('[data-row] a').first().click();
		await page.getByRole('heading', { name: 'Why it is dead' }).waitFor();
		assert.equal(await changing.count(), 0);
		await page.goto(`${t.base}#/dead/outbox`);
		await totalIs(page, t.request.counts.dead);
		assert.equal(await changing.count(), 0);
	},

	async hiddenPayloads(t) {
		const page = await t.open(`#/messages/outbox/${t.request.ids.exact}`);
		await page.locator('[data-mode=payloads-hidden]').waitFor();
		await page.getByText('The server hides payloads').waitFor();
		assert.equal(await page.locator('[data-text=payload]').count(), 0);
		assert.ok(!(await page.content()).includes('9007199254740993'));
	},

	async token(t) {
		const page = await t.open('#/dead/outbox');
		const dialog = page.getByRole('dialog');
		await dialog.waitFor();
		await t.accessible(page, 'token');
		await page.keyboard.press('Escape');
		await page.keyboard.press('Escape');
		assert.equal(await button(dialog, 'Close dialog').count(), 0, 'the page needs the token');
		assert.equal(await dialog.count(), 1);
		assert.ok(!(await page.content()).includes('orders.created'));
		await page.locator('input[name=token]').fill('wrong');
		await page.keyboard.press('Enter');
		await dialog.getByText('The server rejected this token.').waitFor();
		await page.locator('input[name=token]').fill(t.request.token);
		await page.keyboard.press('Enter');
		await totalIs(page, t.request.counts.dead);
		await page.reload();
		await totalIs(page, t.request.counts.dead);
		assert.equal(await dialog.count(), 0);
		assert.deepEqual(await page.evaluate(() => Object.values(localStorage)), [], 'nothing outlives the tab');
		const other = await t.open('#/dead/outbox');
		await other.getByRole('dialog').waitFor();
		await other.locator('input[name=token]').fill(t.request.readToken);
		await other.keyboard.press('Enter');
		await other.locator('[data-mode=read-only]').waitFor();
		await totalIs(other, t.request.counts.dead);
		assert.equal(await other.getByRole('button', { name: /Retry|Delete/ }).count(), 0, 'a read token changes nothing');
		await button(page, 'Forget the token').click();
		await dialog.waitFor();
	},

	async outage(t) {
		const page = await t.open('#/overview');
		await page.getByText('Live', { exact: true }).waitFor();
		await ask('stop');
		await page.getByRole('alert').getByText('The server cannot be reached').waitFor();
		await page.getByText(/No answer for/).waitFor();
		assert.ok(await page.locator('[data-tile="Dead"]').count(), 'the last numbers stay');
		await page.getByText(/The numbers are from/).waitFor();
		await t.accessible(page, 'outage');
		await ask('start');
		await page.getByText('Live', { exact: true }).waitFor();
		await page.getByRole('alert').waitFor({ state: 'detached' });
		await ask('stop');
		await page.getByRole('alert').waitFor();
		await ask('start');
		await button(page, 'Retry now').click();
		await page.getByText('Live', { exact: true }).waitFor();
	},

	async backoff(t) {
		const page = await t.open('#/overview');
		await button(page, 'Pause').click();
		await page.getByText(/numbers are [3-9] s old/).waitFor();
		await page.clock.install();
		await page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000));
		let failed = 0;
		page.on('requestfailed', (request) => { if (request.url().endsWith('/stats')) failed++; });
		await page.route('**/api/v1/**', (route) => route.abort());
		await button(page, 'Resume').click();
		for (const [before, seconds] of [4, 8, 16, 30, 30].entries()) {
			await until(() => failed === before + 1, `failure ${before + 1}`);
			await page.getByText(`Next attempt in ${seconds} s.`).waitFor();
			await page.clock.runFor(seconds * 1000 - 100);
			assert.equal(failed, before + 1, `nothing is fetched for ${seconds} s`);
			await page.clock.runFor(200);
		}
		await until(() => failed === 6, 'failure 6');
		await page.getByText('Next attempt in 30 s.').waitFor();
		await page.unroute('**/api/v1/**');
		await page.clock.runFor(30000);
		await page.getByRole('alert').waitFor({ state: 'detached' });
	},

	async refresh(t) {
		const page = await t.open('#/overview');
		let requests = 0;
		page.on('request', (request) => { if (request.url().includes('/api/v1/stats')) requests++; });
		await until(() => requests >= 2, 'refreshes');
		await button(page, 'Pause').click();
		await page.getByText(/^Paused/).waitFor();
		const paused = requests;
		await page.evaluate(() => { window.dispatchEvent(new Event('focus')); document.dispatchEvent(new Event('visibilitychange')); });
		await page.getByText(/numbers are [3-9] s old/).waitFor();
		assert.equal(requests, paused);
		await page.reload();
		await page.getByText(/^Paused/).waitFor();
		await button(page, 'Resume').click();
		await page.getByText('Live', { exact: true }).waitFor();
		const hide = (hidden) => page.evaluate((value) => {
			Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
			document.dispatchEvent(new Event('visibilitychange'));
		}, hidden);
		await page.clock.install();
		await hide(true);
		await page.clock.runFor(100);
		const hidden = requests;
		await page.clock.runFor(30000);
		assert.equal(requests, hidden, 'nothing is fetched for a hidden page');
		await hide(false);
		await until(() => requests > hidden, 'a refresh when it is shown again');
	},
};
