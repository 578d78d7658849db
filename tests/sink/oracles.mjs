// SPDX-License-Identifier: Apache-2.0
// Reads requests as JSON, [{headers, body (base64), secrets}], and says what two libraries that
// are not ours make of each: the event by `cloudevents`, and which secrets `standardwebhooks`
// finds it signed with.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const require = createRequire(process.argv[2] + '/');
const { HTTP } = require('cloudevents');
const { Webhook } = require('standardwebhooks');

function isSigned(secret, body, headers) {
	try {
		new Webhook(secret).verify(body, headers);
		return true;
	} catch (error) {
		return false;
	}
}

function read({ headers, body, secrets }) {
	const bytes = Buffer.from(body, 'base64');
	const structured = headers['content-type'].startsWith('application/cloudevents');
	const text = /json|text/.test(headers['content-type']);
	const event = HTTP.toEvent({ headers, body: structured || text ? bytes.toString() : bytes });
	event.validate();
	const { data, data_base64, ...attributes } = event.toJSON();
	return {
		attributes,
		data: data_base64 ? undefined : data,
		binary: data_base64 || (Buffer.isBuffer(data) ? data.toString('base64') : undefined),
		signed: secrets.map((secret) => isSigned(secret, bytes, headers)),
	};
}

console.log(JSON.stringify(JSON.parse(readFileSync(0)).map(read)));
