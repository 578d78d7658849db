#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// worker.js URL: delivers messages until Ctrl-C, through node-postgres and plain SQL.
'use strict';

const { randomUUID } = require('crypto');
const { Client } = require('pg');

const LEASE = 30; // seconds

async function deliver({ topic, key, payload }) {
	if (payload.total <= 0)
		throw new Error(`order ${payload.order} costs nothing`);
	console.log(topic, key, payload.order);
}

// Delivers a batch, and returns how many messages it had.
async function work(db, worker) {
	const start = performance.now(), failed = new Set(), untried = [];
	const { rows } = await db.query('SELECT * FROM postroom_claim($1, 10, $2)', [worker, `${LEASE} s`]);
	for (const message of rows) {
		const { id, claims, key } = message;
		// Never behind a failed message of its key, nor when the lease may end during the attempt.
		if (failed.has(key) || performance.now() - start > LEASE * 1000 / 2) {
			untried.push(message);
			continue;
		}
		try {
			await deliver(message);
		} catch (error) {
			await db.query('SELECT postroom_nack($1, $2, $3, $4)', [worker, id, claims, error.message]);
			failed.add(key ?? id);
			continue;
		}
		await db.query('SELECT postroom_ack($1, $2, $3)', [worker, [id], [claims]]);
	}
	await db.query('SELECT postroom_release($1, $2, $3)',
		[worker, untried.map(({ id }) => id), untried.map(({ claims }) => claims)]);
	return rows.length;
}

async function main() {
	const db = new Client({ connectionString: process.argv[2] });
	const worker = randomUUID();
	await db.connect();
	for (;;)
		if (await work(db, worker) === 0)
			await new Promise((resolve) => setTimeout(resolve, 1000));
}

main();
