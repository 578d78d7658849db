// SPDX-License-Identifier: Apache-2.0
// Opens pages of the documentation site in Chromium, on a desktop and on a phone.
//   node site.mjs NPM-DIRECTORY '' SITE-URL
import assert from 'node:assert/strict';
import { Tester, chromium, until } from '../admin/browser.mjs';

const base = process.argv[4];
const PAGES = ['index.html', 'README.html', 'retries.html', 'doctor.html', 'start/django.html', 'reference/commands.html', 'man/postroom.1.html'];
const SIZES = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

const checks = {
	async pages_work_on_desktop_and_phone(tester) {
		for (const [name, size] of Object.entries(SIZES)) {
			for (const path of PAGES) {
				const page = await tester.open(path, { size });
				const what = `${path} on a ${name}`;
				await tester.fits(page, what);
				await tester.accessible(page, what);
				const { y } = await page.locator('main h1').boundingBox();
				assert.ok(y < size.height / 2, `${what} begins with its title, not with the menu`);
				await page.close();
			}
		}
	},
	async menu_of_a_phone_is_one_tap_away(tester) {
		const page = await tester.open('retries.html', { size: SIZES.phone });
		await page.getByRole('link', { name: 'Menu' }).click();
		await page.locator('nav').getByText('Runbooks', { exact: true }).click();
		await page.locator('nav').getByRole('link', { name: 'PostroomDeadLetters', exact: true }).click();
		await until(() => page.url().endsWith('runbooks/dead-letters.html'), 'the runbook');
	},
	async wide_window_lists_the_sections_of_a_page(tester) {
		const page = await tester.open('retries.html', { size: { width: 1500, height: 900 } });
		await tester.accessible(page, 'a wide window');
		await page.locator('aside').getByRole('link', { name: 'Replay dead letters safely' }).click();
		await until(() => page.url().endsWith('#replay-dead-letters-safely'), 'the section');
	},
	async copied_commands_have_no_prompt(tester) {
		const page = await tester.open('retries.html');
		const copied = await page.evaluate(() => {
			getSelection().selectAllChildren(document.querySelector('pre'));
			return getSelection().toString();
		});
		assert.match(copied, /^export POSTROOM_DB/);
	},
	async search_finds_the_answer(tester) {
		const page = await tester.open('start/django.html');
		await page.keyboard.press('/');
		await page.keyboard.type('replay dead letters safely');
		await until(() => page.locator('#results a').count(), 'results');
		await page.keyboard.press('Enter');
		await until(() => page.url().endsWith('/retries.html#replay-dead-letters-safely'), 'the answer');
		await page.locator('#query').fill('xyzzy plugh');
		await until(async () => (await page.locator('#results').innerText()) === 'Nothing found', 'no result');
	},
};

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
	args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
for (const [name, check] of Object.entries(checks)) {
	const context = await browser.newContext({ viewport: SIZES.desktop });
	const tester = new Tester(context, { base });
	context.on('request', (request) => {
		if (!request.url().startsWith(base)) tester.problems.push(`external: ${request.url()}`);
	});
	try {
		await check(tester);
		assert.deepEqual(tester.problems, []);
		console.log(`ok ${name}`);
	} catch (error) {
		console.log(`not ok ${name}\n${error.stack}\n${tester.problems.join('\n')}`);
	}
	await context.close();
}
await browser.close();
