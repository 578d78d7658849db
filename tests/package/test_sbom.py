# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a build."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from conftest import PROGRAM, ROOT
from test_kubernetes import npm

SBOM = pathlib.Path(PROGRAM).parent / 'postroom.cdx.json'
CHECK = '''
const { readFileSync } = require('node:fs');
const [home, ...files] = process.argv.slice(1);
const schemas = `${home}/node_modules/@cyclonedx/cyclonedx-library/res/schema`;
const read = (path) => JSON.parse(readFileSync(path, 'utf8'));
const ajv = new (require(`${home}/node_modules/ajv`))({ strict: false, validateFormats: false });
for (const name of ['spdx', 'jsf-0.82']) ajv.addSchema(read(`${schemas}/${name}.SNAPSHOT.schema.json`), `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`);
const validate = ajv.compile(read(`${schemas}/bom-1.5.SNAPSHOT.schema.json`));
for (const file of files) console.log(validate(read(file)) ? 'valid' : ajv.errorsText(validate.errors));
'''


def W1_bill_of_materials_names_every_library_of_the_program(postroom):
    version = postroom.ok('--version', '--json').object
    document = json.loads(SBOM.read_text())
    program = document['metadata']['component']
    assert (program['name'], program['version']) == ('postroom', version['version'])
    libraries = {component['name']: component['version'] for component in document['components']}
    # hiredis does not report the version that is loaded.
    assert set(libraries) - {'hiredis'} == set(version['libraries'])
    assert ('hiredis' in libraries) == ('redis' in version['sinks'])
    assert document['dependencies'] == [{'ref': program['bom-ref'],
                                         'dependsOn': [component['bom-ref'] for component in document['components']]}]


def W1_bill_of_materials_of_a_release_names_its_commit(tmp_path):
    source = tmp_path / 'revision.c'
    text = (ROOT / 'src' / 'base' / 'revision.c').read_text()
    source.write_text(re.sub(r'\$Format:%cI\$', '2026-01-02T03:04:05+00:00', re.sub(r'\$Format:%H\$', 'a' * 40, text)))

    def make(*libraries):
        return subprocess.check_output([ROOT / 'tools' / 'sbom', '0.1.0', source, *libraries], text=True)
    document = json.loads(make('b=2=MIT', 'a=1=MIT'))
    assert document['metadata']['timestamp'] == '2026-01-02T03:04:05+00:00'
    assert document['metadata']['component']['properties'] == [{'name': 'postroom:revision', 'value': 'a' * 40}]
    assert make('a=1=MIT', 'b=2=MIT') == make('b=2=MIT', 'a=1=MIT')
    assert json.loads(make('a=1.1=MIT'))['serialNumber'] != json.loads(make('a=1=MIT'))['serialNumber']


@pytest.mark.skipif(not SBOM.exists(), reason='an old build')
def W1_bill_of_materials_follows_the_schema_of_cyclonedx(tmp_path):
    home = npm('@cyclonedx/cyclonedx-library@10', 'ajv@8', name='npm-cyclonedx')
    wrong = json.loads(SBOM.read_text())
    wrong['components'][0]['type'] = 'libary'
    (tmp_path / 'wrong.json').write_text(json.dumps(wrong))
    done = subprocess.run(['node', '-e', CHECK, home, SBOM, tmp_path / 'wrong.json'], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, 'NODE_NO_WARNINGS': '1'})
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == 'valid' and lines[1] != 'valid', done.stdout
