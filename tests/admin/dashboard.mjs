// SPDX-License-Identifier: Apache-2.0
// Runs the checks of the dashboard in Chromium. browsing.py starts it, and for each check sends one
// line {"check", "base", …} and reads one line {"ok"} or {"error"}. A check may ask browsing.py to do
// something in between: {"ask", …} is answered with one line.
//   node dashboard.mjs NPM-DIRECTORY SCREENSHOT-DIRECTORY
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tester, chromium, hear, say } from './browser.mjs';
import { checks as actions } from './dashboard_actions.mjs';
import { checks as views } from './dashboard_views.mjs';

const checks = { ...views, ...actions };
const ARGUMENTS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
	'--disable-component-update', '--disable-sync'];
const profile = mkdtempSync(join(tmpdir(), 'postroom-chromium-'));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: [...ARGUMENTS, `--disk-cache-dir=${profile}`] });
say({ ready: true });
for (;;) {
	let request;
	try {
		request = await hear();
	} catch {
		break;
	}
	const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
	const tester = new Tester(context, request);
	try {
		await checks[request.check](tester);
		assert.deepEqual(tester.problems, []);
		say({ ok: true });
	} catch (error) {
		const page = context.pages().at(-1);
		if (page && !page.isClosed()) await tester.shot(page, `failed-${request.check}`).catch(() => {});
		say({ error: `${error.stack}\n${tester.problems.join('\n')}` });
	}
	await context.close();
}
await browser.close();
rmSync(profile, { recursive: true, force: true });
