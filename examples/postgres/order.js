#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// order.js URL: an order and its message in one transaction, through node-postgres and plain SQL.
'use strict';

const { Client } = require('pg');

// Returns the id of the order's message, and whether it is a duplicate.
async function placeOrder(db, order, customer, total) {
	await db.query('BEGIN');
	try {
		const { rows: [answer] } = await db.query(
			`SELECT id, duplicate FROM postroom_enqueue('orders.created', $1,
				key => $2, idempotency_key => $2)`,
			[JSON.stringify({ order, total }), order]);
		if (!answer.duplicate) {
			await db.query('INSERT INTO orders VALUES ($1, $2, $3)', [order, customer, total]);
			if (total <= 0)
				throw new Error(`order ${order} costs nothing`);
		}
		await db.query('COMMIT');
		return answer;
	} catch (error) {
		await db.query('ROLLBACK');
		throw error;
	}
}

async function main() {
	const db = new Client({ connectionString: process.argv[2] });
	await db.connect();
	await db.query('CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text, total integer)');

	for (let i = 0; i < 2; i++) {
		const { id, duplicate } = await placeOrder(db, 'js-1', 'Ada', 4200);
		console.log(`js-1 ${duplicate ? 'was placed before' : 'is placed'}, with message ${id}`);
	}
	try {
		await placeOrder(db, 'js-2', 'Bob', 0);
	} catch (error) {
		console.log(`${error.message}: rolled back, and no message about it`);
	}
	await db.end();
}

main();
