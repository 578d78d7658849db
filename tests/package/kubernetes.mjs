// SPDX-License-Identifier: Apache-2.0
// kubernetes.mjs HOME DIRECTORY: checks the manifests that stdin has as a JSON array. Prints the problems, one per line.
// HOME has the schemas that Kubernetes and the operator of Prometheus publish, as npm packages. The schemas allow
// unknown members, so the compiler of TypeScript checks the names; DIRECTORY is for its input.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [home, directory] = process.argv.slice(2);
const require = createRequire(`${home}/package.json`);
const manifests = JSON.parse(readFileSync(0, 'utf8'));
const lines = [];

for (const [index, manifest] of manifests.entries()) {
  const { apiVersion, kind } = manifest;
  const library = apiVersion.startsWith('monitoring.coreos.com/') ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models';
  const path = `${home}/node_modules/${library}/${apiVersion}/${kind}`;
  const model = require(path)[kind];
  try {
    new model(manifest).validate();
  } catch (error) {
    console.log(`${kind}: ${error.message}`);
  }
  lines.push(`import { I${kind} as I${index} } from '${path}';`,
    `export const m${index}: I${index} = ${JSON.stringify(manifest)};`);
}
writeFileSync(`${directory}/manifests.ts`, lines.join('\n'));
try {
  execFileSync(`${home}/node_modules/.bin/tsc`,
    ['--noEmit', '--strict', '--skipLibCheck', `${directory}/manifests.ts`], { encoding: 'utf8' });
} catch (error) {
  console.log(error.stdout);
}
