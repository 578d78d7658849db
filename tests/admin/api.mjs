// SPDX-License-Identifier: Apache-2.0
// api.mjs HOME URL RUNS: random requests, valid and not, to every operation that the server
// describes. Each answer has a status that is documented and a body that fits its schema; the server
// stays alive. HOME is where npm has put fast-check and ajv. Prints how often each status was seen.
import { createRequire } from 'node:module';

const [home, base, runs] = process.argv.slice(2);
const require = createRequire(home + '/');
const fc = require('fast-check');
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;

// The server closes idle connections. On a slow machine, a request may meet the end of the connection
// that it reuses; it is then sent once more, on a new one.
async function ask(url, options) {
	try {
		return await fetch(base + url, options);
	} catch (error) {
		if (error.cause?.code !== 'UND_ERR_SOCKET')
			throw error;
		return await fetch(base + url, options);
	}
}

const description = await (await ask('/api/v1/openapi.json')).json();
const ajv = new Ajv({ strict: false });
addFormats(ajv);
ajv.addSchema(description, 'api');

const operations = Object.entries(description.paths).flatMap(([path, item]) =>
	Object.entries(item).map(([method, operation]) => ({ path, method, operation })));
const ids = (await (await ask('/api/v1/outbox?page_size=20')).json()).items.map((row) => row.id);

const text = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.constantFrom('', '*', '%', '-1', '0', '\u{10ffff}', "' OR 1=1 --"));
const uuid = fc.oneof(fc.uuid(), fc.constantFrom(...ids, '00000000-0000-0000-0000-000000000000'));
const time = fc.date({ min: new Date(0), max: new Date(4e12), noInvalidDate: true }).map((date) => date.toISOString());

function valueOf(schema) {
	if (schema.enum)
		return fc.constantFrom(...schema.enum);
	if (schema.type === 'integer')
		return fc.integer({ min: schema.minimum ?? 0, max: schema.maximum ?? 1000 });
	if (schema.type === 'boolean')
		return fc.boolean();
	if (schema.format === 'uuid')
		return uuid;
	if (schema.format === 'date-time')
		return time;
	if (schema.type === 'object')
		return fc.record(Object.fromEntries(Object.entries(schema.properties).map(([name, part]) => [name, valueOf(part)])),
			{ requiredKeys: schema.required });
	return fc.string({ minLength: 1, maxLength: 20 });
}

const resolve = (schema) => schema.$ref ? description.components.schemas[schema.$ref.split('/').pop()] : schema;

// Mostly what is described; now and then anything.
const spoiled = (arbitrary) => fc.oneof({ weight: 8, arbitrary }, { weight: 1, arbitrary: text });

function requestOf({ path, method, operation }) {
	const parameters = operation.parameters ?? [];
	const inPath = parameters.filter((parameter) => parameter.in === 'path');
	const inQuery = parameters.filter((parameter) => parameter.in === 'query');
	const all = (list) => fc.record(Object.fromEntries(list.map((parameter) => [parameter.name, spoiled(valueOf(parameter.schema))])));
	// A few at a time: most combinations of many exclude each other.
	const some = (list) => fc.subarray(list, { maxLength: Math.min(4, list.length) }).chain(all);
	const schema = operation.requestBody && resolve(operation.requestBody.content['application/json'].schema);
	const body = schema
		? fc.oneof({ weight: 6, arbitrary: valueOf(schema).map((value) => JSON.stringify(value)) },
			{ weight: 1, arbitrary: fc.json() }, { weight: 1, arbitrary: text })
		: fc.oneof({ weight: 9, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: text });
	return fc.record({
		path: fc.constant(path), method: fc.constant(method), inPath: all(inPath), inQuery: some(inQuery),
		extra: fc.option(fc.tuple(text, text), { freq: 12 }), body, operation: fc.constant(operation),
	});
}

const seen = {};

async function check({ path, method, inPath, inQuery, extra, body, operation }) {
	let url = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(inPath[name]).replace(/^\.*$/, 'x').toWellFormed?.() ?? 'x'));
	const query = new URLSearchParams(Object.entries(inQuery).map(([name, value]) => [name, String(value)]));
	if (extra)
		query.append(...extra);
	if (query.size)
		url += '?' + query;
	const answer = await ask(url, { method: method.toUpperCase(), body: method === 'get' ? undefined : body });
	const got = await answer.text();
	const key = `${operation.operationId} ${answer.status}`;
	seen[key] = (seen[key] ?? 0) + 1;
	const documented = operation.responses[answer.status];
	if (!documented || answer.status >= 500)
		throw new Error(`${method} ${url}: status ${answer.status} is not documented: ${got.slice(0, 500)}`);
	const [type, content] = Object.entries(documented.content)[0];
	if (!answer.headers.get('content-type').startsWith(type))
		throw new Error(`${method} ${url}: ${answer.headers.get('content-type')} instead of ${type}`);
	if (type !== 'application/json')
		return;
	const validate = ajv.getSchema(`api${content.schema.$ref}`);
	if (!validate(JSON.parse(got)))
		throw new Error(`${method} ${url}: ${ajv.errorsText(validate.errors)} in ${got.slice(0, 500)}`);
}

await fc.assert(fc.asyncProperty(fc.constantFrom(...operations).chain(requestOf), check), { numRuns: Number(runs) });
// Chance may have passed an operation over: ask it until it succeeds.
for (const one of operations) {
	const { operationId } = one.operation;
	if (Number(runs) < 2000 || /Message|Event/.test(operationId))
		continue;
	for (let tries = 0; !seen[`${operationId} 200`] && tries < 1000; tries++)
		await check(fc.sample(requestOf(one), 1)[0]);
	if (!seen[`${operationId} 200`])
		throw new Error(`${operationId} never succeeded`);
}
console.log(JSON.stringify(seen));
