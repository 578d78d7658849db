// SPDX-License-Identifier: Apache-2.0
// Checks of what the views show.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { VIEWS, ask, button, field, row, totalIs, until } from './browser.mjs';

export const checks = {
	async overview(t) {
		const page = await t.open();
		const health = page.locator('[data-health]');
		await health.waitFor();
		const stats = await t.api('stats');
		assert.equal(await health.getAttribute('data-health'), stats.status);
		assert.equal(await health.textContent(), 'Degraded');
		for (const { component, message } of stats.reasons) {
			// An age grows, and is shown in minutes.
			await page.locator('.health li').getByText(component === 'age' ? /^the oldest due message is \d+ min( \d+ s)? old; the threshold is 1 min$/i : message).waitFor();
		}
		assert.ok(stats.reasons.find(({ component }) => component === 'sink').since, 'the outage has a beginning');
		for (const [name, table] of [['dead', 'outbox'], ['inbox', 'inbox']]) {
			const { since } = stats.reasons.find(({ component }) => component === name);
			const { items } = await t.api(`${table}/groups?status=dead`);
			assert.equal(since, items.map((group) => group.first_at).sort()[0], `since the first dead letter of the ${table}`);
		}
		await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: /^Overview/ }).getByRole('img', { name: 'Degraded' }).waitFor();
		await page.locator('.health').getByText(/^since \d\d:\d\d:\d\d, /).first().waitFor();
		// A probe of the breaker may be in flight at any time: both must agree at some time.
		for (const [label, name] of [['Dead', 'dead'], ['Retrying', 'failed_pending'], ['Backlog', 'backlog'], ['In flight', 'processing']]) {
			const shown = page.locator(`[data-tile="${label}"]  strong`).first();
			await until(async () => await shown.textContent() === (await t.api('stats'))[name].toLocaleString('en-US'), label);
		}
		await row(page, 'orders.created').first().waitFor();
		await row(page, 'hooks').getByText(/^(Open|Half-open)$/).waitFor();
		assert.equal(await page.locator('.chart .plot').count(), 2);
		await page.locator('.chart .plot').first().focus();
		await page.keyboard.press('ArrowLeft');
		if (stats.history.length) await page.locator('.readout').waitFor();
		await page.locator('.health li', { hasText: 'in the inbox' }).getByRole('link').click();
		await until(() => page.url().endsWith('#/dead/inbox'), 'the dead letters of the inbox');
		await page.goBack();
		await row(page, 'orders.created').first().getByRole('link').first().click();
		await until(() => page.url().includes('topic=orders.created'), 'the filtered list');
	},

	async countAge(t) {
		const page = await t.open();
		await page.getByText('Live', { exact: true }).waitFor();
		await page.getByText(/^counted \d+ (s|min.*) ago$/).waitFor();
	},

	async sparse(t) {
		const page = await t.context.newPage();
		await page.route('**/api/v1/stats', async (route) => {
			const stats = await (await route.fetch()).json();
			stats.history.forEach((sample, at) => { if (at !== 90) sample.p50_seconds = sample.p99_seconds = null; });
			await route.fulfill({ json: stats });
		});
		await page.goto(`${t.base}#/overview`);
		const dots = page.locator('.chart', { hasText: 'p99' }).locator('.dots');
		await until(async () => await dots.count() === 2, 'the chart');
		assert.deepEqual(await dots.evaluateAll((paths) => paths.map((one) => [one.getAttribute('d').split('M').length, getComputedStyle(one).strokeWidth])), [[2, '5px'], [2, '5px']]);
	},

	async capped(t) {
		const page = await t.open('#/messages/outbox');
		const tabs = page.getByRole('navigation', { name: 'Status' });
		await tabs.getByRole('link', { name: 'Delivered 10,000+', exact: true }).waitFor();
		await tabs.getByRole('link', { name: 'Pending 100,000+', exact: true }).waitFor();
		await tabs.getByRole('link', { name: 'Retrying 54,321', exact: true }).waitFor();
		await page.getByText('100,000+ messages', { exact: true }).waitFor();
		await page.locator('.nav .count').getByText('100,000+', { exact: true }).waitFor();
		await page.goto(`${t.base}#/dead/outbox`);
		await button(page, 'Retry all…').click();
		const dialog = page.getByRole('dialog');
		await dialog.getByText('100,000+', { exact: true }).waitFor();
		await dialog.getByText('This retries 100,000 of them.').waitFor();
		await button(dialog, 'Retry 100,000 messages').waitFor();
	},

	async causes(t) {
		const page = await t.open('#/dead/outbox');
		await page.getByText('100+ dead letters, 100+ causes', { exact: true }).waitFor();
		await page.getByText('Only the 100 largest groups are shown.').waitFor();
		assert.equal(await page.locator('[data-row]').count(), 100);
		await button(page, 'Retry all…').click();
		await page.locator('[data-matched="101"]').waitFor();
	},

	async badFilters(t) {
		const page = await t.open('#/messages/outbox');
		await totalIs(page, t.request.counts.all);
		await page.getByText('More filters').click();
		await field(page, 'tenant').fill('abc');
		await page.getByRole('alert').getByText('tenant takes a UUID.').waitFor();
		assert.equal(await page.locator('[data-row], .loading').count(), 0, 'rows of another filter are not shown');
		await field(page, 'tenant').fill('');
		await totalIs(page, t.request.counts.all);
		await page.getByRole('alert').waitFor({ state: 'detached' });
		await page.goto(`${t.base}#/dead/outbox?created_from=yesterday`);
		await page.getByRole('alert').getByText(/^created_from takes a time/).waitFor();
		assert.equal(await page.locator('[data-row], .loading').count(), 0);
	},

	async reasons(t) {
		const page = await t.open();
		const reasons = page.locator('.health li');
		await reasons.nth(0).getByText('The oldest due message is 14 d 6 h old; the threshold is 10 min').waitFor();
		await reasons.nth(0).getByText(/^since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, 14 d ago$/).waitFor();
		await reasons.nth(1).getByText('100,000+ undelivered messages; the threshold is 100,000', { exact: true }).waitFor();
		assert.equal(await page.locator('[data-tile="Oldest due"] strong').textContent(), '14 d 6 h ');
	},

	async sample(t) {
		const page = await t.open();
		await page.locator('section', { hasText: 'Topics' }).getByText('of a sample of the messages', { exact: true }).waitFor();
	},

	async longValues(t) {
		for (const width of [320, 1024, 1280, 3840]) {
			const page = await t.open('', { size: { width, height: 900 } });
			await page.locator('.nav .count').getByText('100,000+', { exact: true }).waitFor();
			for (const [name, hash] of Object.entries(VIEWS)) {
				await page.goto(t.base + hash);
				await page.locator('.bar').getByText('Live', { exact: true }).waitFor();
				await until(async () => await page.locator('.loading').count() === 0, 'the view');
				await t.fits(page, `${name} at ${width}`);
				const cut = await page.locator('td, dd, .facts, .tile, .nav, .nav a, .scroll').evaluateAll((nodes) => nodes.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 60)));
				assert.deepEqual(cut, [], `${name} at ${width}: values are cut`);
				const broken = await page.locator('.facts .faint, th, .pill, button').evaluateAll((nodes) => nodes.filter((one) => one.offsetHeight > 2 * one.offsetWidth && one.textContent).map((one) => one.textContent));
				assert.deepEqual(broken, [], `${name} at ${width}: words are broken into letters`);
				const numbers = await page.locator('.list .number').evaluateAll((nodes) => nodes.filter((one) => one.getClientRects().length > 1).map((one) => one.textContent));
				assert.deepEqual(numbers, [], `${name} at ${width}: numbers are broken into digits`);
			}
			await page.close();
		}
	},

	async traffic(t) {
		const page = await t.open('#/overview');
		await page.getByText('No messages yet').waitFor();
		const delivered = (count) => until(async () => (await row(page, 'bus').locator('[data-label=Delivered]').textContent()) === count, `${count} deliveries`);
		await delivered('0');
		await ask('enqueue', { count: 1200, topic: 'live.order' });
		await delivered('1,200');
		await page.getByText(/1,200 messages delivered in the last 15 minutes, none failed/).waitFor();
		await ask('enqueue', { count: 3, topic: 'hooks.sent' });
		await row(page, 'hooks').getByText(/^(Open|Half-open)$/).waitFor();
		await page.locator('[data-health=degraded]').waitFor();
		for (const table of ['Sinks', 'Topics']) await page.getByRole('table', { name: table }).getByText(/Failed to connect/).waitFor();
		await row(page, 'hooks.sent').locator('[data-label=Pending]').getByText(/^[23]$/).waitFor();
	},

	async messages(t) {
		const { dead, all } = t.request.counts;
		const page = await t.open('#/messages/outbox');
		await totalIs(page, all);
		const first = (await t.api('outbox?page_size=1')).items[0];
		assert.equal(await page.locator('[data-row]').first().getAttribute('data-row'), first.id, 'newest first');
		await page.getByRole('navigation', { name: 'Status' }).getByRole('link', { name: /^Dead/ }).click();
		await totalIs(page, dead);
		await field(page, 'topic').fill('mail.*');
		await totalIs(page, 3);
		await field(page, 'topic').fill('');
		await field(page, 'error').fill('NO ADDRESS');
		await totalIs(page, 3);
		await field(page, 'error').fill('');
		await field(page, 'key').fill('o-7');
		await totalIs(page, 1);
		await field(page, 'key').fill('');
		await page.getByText('More filters').click();
		await field(page, 'id').fill(t.request.ids.exact);
		await page.getByRole('navigation', { name: 'Status' }).getByRole('link', { name: 'All' }).click();
		await totalIs(page, 1);
		await field(page, 'id').fill('');
		await field(page, 'tenant').fill(t.request.tenant);
		await totalIs(page, 2);
		await field(page, 'tenant').fill('');
		await field(page, 'namespace').fill('billing');
		await totalIs(page, 4);
		await field(page, 'namespace').fill('');
		await page.locator('select[name=within]').selectOption('1h');
		await totalIs(page, t.request.counts.lastHour);
		await page.locator('select[name=within]').selectOption('custom');
		await field(page, 'created_to').fill('2001-01-01T00:00');
		await field(page, 'created_to').blur();
		await totalIs(page, 0);
		await page.getByText('No messages match').waitFor();
		await page.getByRole('button', { name: 'Clear filters' }).click();
		await totalIs(page, all);
	},

	async exports(t) {
		const page = await t.open('#/messages/outbox?topic=mail.*&error=no+address');
		await totalIs(page, 3);
		const ids = await page.locator('[data-row]').evaluateAll((rows) => rows.map((one) => one.dataset.row));
		for (const format of ['CSV', 'NDJSON']) {
			const [download] = await Promise.all([page.waitForEvent('download'), button(page, `Export as ${format}`).click()]);
			assert.equal(download.suggestedFilename(), `outbox.${format.toLowerCase()}`);
			const lines = readFileSync(await download.path(), 'utf8').trim().split('\n').slice(format === 'CSV' ? 1 : 0);
			assert.deepEqual(lines.map((line) => ids.find((id) => line.includes(id))), ids, format);
		}
	},

	async paging(t) {
		const page = await t.open('#/messages/outbox');
		await totalIs(page, t.request.counts.all);
		const ids = () => page.locator('[data-row]').evaluateAll((rows) => rows.map((one) => one.dataset.row));
		const newest = await ids();
		assert.equal(newest.length, 50);
		await button(page, 'Older').click();
		await until(async () => (await ids())[0] !== newest[0], 'older messages');
		const older = await ids();
		assert.equal(older.filter((id) => newest.includes(id)).length, 0);
		await page.reload();
		await until(async () => (await ids())[0] === older[0], 'the same page after a reload');
		await button(page, 'Newer').click();
		await until(async () => (await ids())[0] === newest[0], 'newer messages');
		const seen = new Set();
		for (let pages = 0; pages < 50; pages++) {
			(await ids()).forEach((id) => seen.add(id));
			if (await button(page, 'Older').isDisabled()) break;
			const before = (await ids())[0];
			await button(page, 'Older').click();
			await until(async () => (await ids())[0] !== before, 'the next page');
		}
		assert.equal(seen.size, t.request.counts.all);
		await button(page, 'Newest').click();
		await until(async () => (await ids())[0] === newest[0], 'the newest messages');
	},

	async history(t) {
		const page = await t.open('#/messages/outbox');
		await totalIs(page, t.request.counts.all);
		await page.getByRole('navigation', { name: 'Status' }).getByRole('link', { name: /^Dead/ }).click();
		await totalIs(page, t.request.counts.dead);
		await field(page, 'topic').pressSequentially('mail.*');
		await totalIs(page, 3);
		await page.reload();
		await totalIs(page, 3);
		assert.equal(await field(page, 'topic').inputValue(), 'mail.*');
		await page.locator('[data-row] a').first().click();
		await page.getByRole('heading', { name: 'Why it is dead' }).waitFor();
		await page.reload();
		await page.getByRole('heading', { name: 'Why it is dead' }).waitFor();
		await page.goBack();
		await totalIs(page, 3);
		assert.equal(await field(page, 'topic').inputValue(), 'mail.*');
		await page.goBack();
		await totalIs(page, t.request.counts.dead);
		assert.equal(await field(page, 'topic').inputValue(), '', 'typing made one entry of the history');
		await page.goBack();
		await totalIs(page, t.request.counts.all);
		await page.goForward();
		await totalIs(page, t.request.counts.dead);
	},

	async message(t) {
		await t.context.grantPermissions(['clipboard-read', 'clipboard-write']);
		const page = await t.open(`#/messages/outbox/${t.request.ids.exact}`);
		const payload = page.locator('[data-text=payload]');
		await payload.waitFor();
		assert.equal(await payload.textContent(), t.request.payload);
		await page.locator('section', { has: page.getByRole('heading', { name: 'Payload' }) }).last().getByRole('button', { name: 'Copy' }).click();
		await until(async () => await page.evaluate(() => navigator.clipboard.readText()) === t.request.payload, 'the copied payload');
		const [download] = await Promise.all([page.waitForEvent('download'), button(page, 'Download').click()]);
		assert.equal(readFileSync(await download.path(), 'utf8'), t.request.payload);
		await button(page, 'Indent').click();
		await until(async () => (await payload.textContent()).includes('\n'), 'indentation');
		assert.match(await payload.textContent(), /9007199254740993/);
		assert.match(await payload.textContent(), /1\.10/);
		for (const text of ['Created', 'Dead', 'o-exact', 'x-source', 'checkout', 'HTTP 422: exact']) await page.getByText(text, { exact: true }).first().waitFor();
		await page.goto(`${t.base}#/messages/outbox/${t.request.ids.delayed}`);
		await page.getByRole('heading', { name: 'ok.delayed' }).waitFor();
		const events = await page.locator('.timeline strong').allTextContents();
		assert.deepEqual(events, ['Created', 'Due', 'Delivered']);
		await page.goto(`${t.base}#/messages/outbox?topic=hooks.late`);
		await row(page, 'hooks.late').locator('.pill').getByText('pending', { exact: true }).waitFor();
		await page.goto(`${t.base}#/messages/outbox/00000000-0000-7000-8000-000000000000`);
		await page.getByText('This message does not exist').waitFor();
	},

	async job(t) {
		const page = await t.open('#/messages/inbox?handler=import');
		await totalIs(page, 1);
		await page.locator('[data-row] a').first().click();
		await page.getByRole('heading', { name: 'Steps' }).waitFor();
		await page.getByText('fetch', { exact: true }).waitFor();
		assert.match(await page.locator('[data-text=checkpoint]').textContent(), /9007199254740993/);
		assert.match(await page.locator('[data-text=checkpoint]').textContent(), /1\.10/);
	},

	async workers(t) {
		const page = await t.open('#/workers');
		const { items } = await t.api('workers');
		await until(async () => await page.getByRole('table', { name: 'Workers' }).locator('[data-row]').count() === items.length, 'the workers');
		await row(page, 'hooks').first().waitFor();
		const doctor = await t.api('doctor');
		const wrong = doctor.items.filter((item) => item.level !== 'ok');
		await until(async () => await page.locator('.findings > .finding').count() === wrong.length, 'the findings');
		for (const { check, title } of wrong) await row(page, check).getByText(title, { exact: true }).first().waitFor();
		await page.getByText(`${doctor.items.length - wrong.length} checks passed`, { exact: true }).waitFor();
	},

	async hostile(t) {
		const page = await t.open();
		const dialogs = [];
		page.on('dialog', (dialog) => { dialogs.push(dialog.message()); dialog.dismiss(); });
		const quiet = async (what) => {
			assert.equal(await page.evaluate(() => window.hacked), undefined, what);
			assert.equal(await page.locator('main img, main script, main i:not(.swatch), main u, main b').count(), 0, what);
			await t.fits(page, what);
		};
		await page.locator('[data-health]').waitFor();
		await quiet('overview');
		for (const table of ['outbox', 'inbox']) {
			await page.goto(`${t.base}#/messages/${table}`);
			await totalIs(page, 1);
			await quiet(`${table}: list`);
			await page.locator('[data-row] .row-link').first().click();
			await page.locator('[data-text=error]').waitFor();
			await quiet(`${table}: message`);
			const { items } = await t.api(table);
			const path = table === 'inbox' ? `inbox/${encodeURIComponent(items[0].handler)}/${encodeURIComponent(items[0].id)}` : `outbox/${items[0].id}`;
			const whole = await t.api(path);
			if (whole.payload_text.length > 65536) await page.getByRole('button', { name: /^Show all/ }).last().click();
			await until(async () => await page.locator('[data-text=payload]').textContent() === whole.payload_text, 'the whole payload');
			await page.goto(`${t.base}#/dead/${table}`);
			await totalIs(page, 1);
			await quiet(`${table}: dead`);
			await page.getByRole('button', { name: 'Retry…' }).first().click();
			await page.locator('[data-matched="1"]').waitFor();
			await quiet(`${table}: dialog`);
			await page.keyboard.press('Escape');
		}
		await page.goto(`${t.base}#/workers`);
		await page.getByRole('heading', { name: 'Sinks' }).waitFor();
		await quiet('workers');
		assert.deepEqual(dialogs, []);
	},

	async sizes(t) {
		for (const [width, height] of [[320, 640], [768, 1024], [3840, 2160]]) {
			const page = await t.open('', { size: { width, height } });
			for (const [name, hash] of Object.entries({ ...VIEWS, message: `#/messages/outbox/${t.request.ids.exact}`, filtered: '#/messages/outbox?status=dead&topic=mail.*&within=custom' })) {
				await page.goto(t.base + hash);
				await page.locator('main > :not(.loading)').first().waitFor();
				await page.getByText('Live', { exact: true }).waitFor();
				await until(async () => await page.locator('.loading').count() === 0, 'the view');
				await t.fits(page, `${name} at ${width}`);
				const cut = await page.locator('.field input').evaluateAll((inputs) => inputs.filter((one) => one.getBoundingClientRect().right > one.parentNode.getBoundingClientRect().right + 1).map((one) => one.name));
				assert.deepEqual(cut, [], `${name} at ${width}: fields are wider than their columns`);
			}
			if (width === 320) {
				await page.goto(`${t.base}#/dead/outbox`);
				await page.getByRole('button', { name: 'Delete…' }).first().click();
				await page.locator('[data-matched]').waitFor();
				const box = await page.getByRole('dialog').boundingBox();
				assert.ok(box.x >= 0 && box.x + box.width <= 320);
				await t.accessible(page, 'dialog at 320');
			}
			await page.close();
		}
	},

	async themes(t) {
		const page = await t.open();
		await page.locator('[data-health]').waitFor();
		const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
		await page.emulateMedia({ colorScheme: 'light' });
		const light = await background();
		await page.emulateMedia({ colorScheme: 'dark' });
		const dark = await background();
		assert.notEqual(light, dark);
		const theme = page.getByRole('button', { name: /^Theme/ });
		await theme.click();
		assert.equal(await background(), light);
		await page.reload();
		await page.locator('[data-health]').waitFor();
		assert.equal(await background(), light);
		await theme.click();
		await page.emulateMedia({ colorScheme: 'light' });
		assert.equal(await background(), dark);
		await theme.click();
		assert.equal(await background(), light);
	},

	async accessibility(t) {
		const page = await t.open();
		for (const scheme of ['light', 'dark']) {
			await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
			for (const [name, hash] of Object.entries({ ...VIEWS, retrying: '#/messages/outbox?status=failed', message: `#/messages/outbox/${t.request.ids.exact}`, job: '#/messages/inbox/import/job-1' })) {
				await page.goto(t.base + hash);
				await page.locator('.bar').getByText('Live', { exact: true }).waitFor();
				await until(async () => await page.locator('.loading').count() === 0, 'the view');
				await t.accessible(page, `${name}, ${scheme}`);
			}
			await page.keyboard.press('?');
			await page.getByRole('dialog').waitFor();
			await t.accessible(page, `help, ${scheme}`);
			await page.keyboard.press('Escape');
			await page.goto(`${t.base}#/dead/outbox`);
			await page.getByRole('button', { name: 'Delete…' }).first().click();
			await page.locator('[data-matched]').waitFor();
			await t.accessible(page, `delete, ${scheme}`);
			await page.keyboard.press('Escape');
		}
	},

	async empty(t) {
		const page = await t.open();
		await page.getByText('Nothing is wrong.').waitFor();
		await page.getByText('No messages yet').waitFor();
		await page.goto(`${t.base}#/dead/outbox`);
		await page.getByText('Nothing is wrong').waitFor();
		await page.goto(`${t.base}#/messages/outbox`);
		await page.getByText('The outbox is empty').waitFor();
		await page.goto(`${t.base}#/messages/inbox`);
		await page.getByText('The inbox is empty').waitFor();
	},

	async prefix(t) {
		const page = await t.open();
		await page.locator('[data-health]').waitFor();
		await page.keyboard.press('g');
		await page.keyboard.press('d');
		await totalIs(page, t.request.counts.dead);
	},

	async screenshots(t) {
		const { scene, views, size = { width: 1280, height: 900 } } = t.request;
		for (const scheme of ['light', 'dark']) {
			const page = await t.open('', { size });
			await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
			for (const view of views) {
				await page.goto(t.base + (VIEWS[view] || '#/dead/outbox'));
				await page.locator('.bar').getByText('Live', { exact: true }).waitFor();
				await until(async () => await page.locator('.loading').count() === 0, 'the view');
				if (view === 'message') {
					await page.getByRole('link', { name: 'Example' }).first().click();
					await page.locator('[data-text=payload]').waitFor();
				}
				await t.shot(page, `${scene}-${view}-${scheme}`);
			}
			await page.close();
		}
	},
};
