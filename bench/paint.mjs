// SPDX-License-Identifier: Apache-2.0
// Milliseconds from the request for the dashboard until its first view is painted, in Chromium with an
// empty cache; one line for each load of each URL, which take turns.
//   node paint.mjs NPM-DIRECTORY LOADS URL...
import { createRequire } from 'node:module';

const [, , home, loads, ...urls] = process.argv;
const { chromium } = createRequire(`${home}/`)('playwright-core');
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'] });

// A frame that begins after the health word is in the document has painted it when the next one begins.
function watch() {
	const look = () => {
		if (!document.querySelector('[data-health]')) requestAnimationFrame(look);
		else requestAnimationFrame(() => { window.paintedAt = performance.now(); });
	};
	requestAnimationFrame(look);
}

for (let load = 0; load < Number(loads) * urls.length; load++) {
	const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
	const page = await context.newPage();
	await page.addInitScript(watch);
	await page.goto(urls[load % urls.length]);
	await page.waitForFunction(() => window.paintedAt);
	console.log(await page.evaluate(() => window.paintedAt));
	await context.close();
	await new Promise((resolve) => setTimeout(resolve, 1500)); // the server counts again
}
await browser.close();
