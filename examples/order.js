#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// order.js FILE: an order and its message in one transaction. Postroom needs no driver here.
'use strict';

// Use the first SQLite driver found: Node's own, better-sqlite3, or sqlite3.
function open(path) {
	for (const [name, connect] of [
		['node:sqlite', ({ DatabaseSync }) => new DatabaseSync(path)],
		['better-sqlite3', (Database) => new Database(path)],
	]) {
		let driver;
		try {
			driver = require(name);
		} catch {
			continue;
		}
		const db = connect(driver);
		return {
			exec: async (sql) => db.exec(sql),
			run: async (sql, ...values) => db.prepare(sql).run(...values),
			close: async () => db.close(),
		};
	}
	const { Database } = require('sqlite3');
	const db = new Database(path);
	const call = (method, ...values) =>
		new Promise((resolve, reject) =>
			db[method](...values, (error) => (error ? reject(error) : resolve())));
	return {
		exec: (sql) => call('exec', sql),
		run: (sql, ...values) => call('run', sql, values),
		close: () => call('close'),
	};
}

async function placeOrder(db, order, customer, total) {
	// IMMEDIATE takes the write lock at once: a transaction that reads first and
	// writes later may be refused if another transaction has written in between.
	await db.exec('BEGIN IMMEDIATE');
	try {
		await db.run('INSERT INTO orders VALUES (?, ?, ?)', order, customer, total);
		await db.run('INSERT INTO postroom_outbox (topic, key, payload) VALUES (?, ?, ?)',
			'orders.created', order, JSON.stringify({ order, total }));
		if (total <= 0)
			throw new Error(`order ${order} costs nothing`);
		await db.exec('COMMIT');
	} catch (error) {
		await db.exec('ROLLBACK');
		throw error;
	}
}

async function main() {
	const db = open(process.argv[2]);
	await db.exec('PRAGMA busy_timeout = 10000');
	await db.exec('CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, total INTEGER)');

	await placeOrder(db, 'js-1', 'Ada', 4200);
	console.log('js-1 is placed, and its message waits for the relay');
	try {
		await placeOrder(db, 'js-2', 'Bob', 0);
	} catch (error) {
		console.log(`${error.message}: rolled back, and no message about it`);
	}
	await db.close();
}

main();
