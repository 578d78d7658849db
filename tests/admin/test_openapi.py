# SPDX-License-Identifier: Apache-2.0
"""The description of the API is true: compared with the table of routes, linted, and tried out."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAM, ROOT, sanitized
from serving import make_dead, serve

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
# The tail of INTERFACE: names that are promised.
PROMISED = ['/livez', '/readyz', '/healthz', '/metrics', '/api/v1/stats', '/api/v1/topics', '/api/v1/sinks', '/api/v1/workers',
            '/api/v1/doctor', '/api/v1/openapi.json', '/api/v1/outbox', '/api/v1/outbox/{id}', '/api/v1/outbox/{id}/retry', '/api/v1/outbox/retry',
            '/api/v1/outbox/delete', '/api/v1/outbox/groups', '/api/v1/outbox.ndjson', '/api/v1/outbox.csv', '/api/v1/inbox']


def npm(*packages):
    """A directory of the build that has these packages; npm brings them once."""
    if not shutil.which('npm') or not shutil.which('node'):
        pytest.skip('npm is missing')
    home = pathlib.Path(PROGRAM).resolve().parent / ('npm-' + re.sub(r'\W+', '-', packages[0]).strip('-'))
    done = home / 'done'
    if not done.exists():
        brought = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=1', '--prefix', home, *packages],
                                 timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True, check=False)
        if brought.returncode != 0:
            pytest.skip('npm brings nothing here: ' + brought.stderr[:300])
        done.touch()
    return home


@pytest.fixture
def admin(postroom):
    make_dead(postroom, 5)
    return serve(postroom, '--to', 'null:', '--namespace', 'none')


def P1_description_has_every_route(admin):
    described = {(method.upper(), path) for path, item in admin.get('/api/v1/openapi.json')['paths'].items() for method in item}
    source = (ROOT / 'src' / 'admin' / 'routes.c').read_text()
    macros = dict(re.findall(r'^#define (API|OUTBOX|INBOX) (.*)$', source, re.MULTILINE))

    def expand(text):
        for name in ('OUTBOX', 'INBOX', 'API'):
            text = re.sub(rf'\b{name}\b', lambda _: macros[name], text)
        return ''.join(re.findall(r'"([^"]*)"', text))
    routes = {(method, expand(path)) for method, path in re.findall(r'PR_METHOD_(\w+),\s*((?:API|OUTBOX|INBOX|"[^"]*"|\s)+),', source)}
    assert routes - {('GET', '/{id}')} == described  # that one is the dashboard
    assert set(PROMISED) <= {path for _, path in described}


def P1_every_described_schema_exists_and_is_used(admin):
    text = admin('GET', '/api/v1/openapi.json').body.decode()
    schemas = set(json.loads(text)['components']['schemas'])
    assert set(re.findall(r'#/components/schemas/(\w+)', text)) == schemas


def P1_description_is_clean_for_a_linter(admin, tmp_path):
    home = npm('@redocly/cli@2')
    (tmp_path / 'openapi.json').write_bytes(admin('GET', '/api/v1/openapi.json').body)
    (tmp_path / 'redocly.yaml').write_text('extends: [recommended]\nrules: { operation-4xx-response: error }\n')
    result = subprocess.run([home / 'node_modules' / '.bin' / 'redocly', 'lint', 'openapi.json'], cwd=tmp_path, check=False,
                            env={**os.environ, 'REDOCLY_TELEMETRY': 'off', 'REDOCLY_SUPPRESS_UPDATE_NOTICE': 'true'},
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert result.returncode == 0 and not re.search(r'\d+ warning', result.stdout), result.stdout[-3000:]


def P1_random_requests_have_documented_answers(admin):
    home = npm('fast-check@4', 'ajv@8', 'ajv-formats@3')
    runs = 100000 if SOAK else 500 if sanitized() else 2000
    result = subprocess.run(['node', ROOT / 'tests' / 'admin' / 'api.mjs', home, f'http://127.0.0.1:{admin.port}', str(runs)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3600,
                            check=False)
    assert result.returncode == 0, result.stdout[-3000:]
    assert admin.get('/livez')['status'] == 'ok'
    admin.stop()
