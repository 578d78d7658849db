# SPDX-License-Identifier: Apache-2.0
"""The manifests of contrib/kubernetes. No cluster runs here: the published schemas and the program check them."""
import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import pytest
import yaml

from conftest import PROGRAM, ROOT, wait_until

FOLDER = ROOT / 'contrib' / 'kubernetes'
KUSTOMIZATIONS = sorted(path.parent for path in FOLDER.rglob('kustomization.yaml'))
KINDS = {'ServiceAccount', 'Deployment', 'Service', 'PodDisruptionBudget', 'NetworkPolicy', 'Job', 'ServiceMonitor', 'PrometheusRule'}


def read(path):
    return yaml.safe_load(path.read_text())


def compose(folder):
    """What kustomize makes of a folder, except for the names of generated maps and the tags of images."""
    found = []
    for name in read(folder / 'kustomization.yaml')['resources']:
        path = folder / name
        found += compose(path) if path.is_dir() else [read(path)]
    return found


def manifests():
    found = [manifest for folder in (FOLDER, FOLDER / 'migrate') for manifest in compose(folder)]
    assert {manifest['kind'] for manifest in found} == KINDS and len(found) == len(KINDS)
    return {manifest['kind']: manifest for manifest in found}


def pods():
    return {kind: manifests()[kind]['spec']['template'] for kind in ('Deployment', 'Job')}


def npm(*packages, name='npm-kubernetes'):
    """A directory of the build that has these packages; npm brings them once."""
    if not shutil.which('npm') or not shutil.which('node'):
        pytest.skip('npm is missing')
    home = pathlib.Path(PROGRAM).resolve().parent / name
    done = home / 'done'
    if not done.exists():
        brought = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=1', '--prefix', home, *packages],
                                 timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 text=True, check=False)
        if brought.returncode != 0:
            pytest.skip('npm brings nothing here: ' + brought.stderr[:300])
        done.touch()
    return home


def W1_every_manifest_is_part_of_a_kustomization():
    listed = {path.resolve() for folder in KUSTOMIZATIONS for path in [folder / 'kustomization.yaml'] +
              [folder / name for name in read(folder / 'kustomization.yaml')['resources']] +
              [folder / name for map in read(folder / 'kustomization.yaml').get('configMapGenerator', []) for name in map['files']]
              if path.is_file()}
    assert listed == {path.resolve() for path in FOLDER.rglob('*') if path.is_file()}


@pytest.mark.skipif(not shutil.which('kubectl'), reason='kubectl is missing')
@pytest.mark.parametrize('folder', KUSTOMIZATIONS, ids=lambda path: path.name)
def W1_kustomize_builds_every_folder(folder):
    done = subprocess.run(['kubectl', 'kustomize', folder], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    built = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest['kind'] != 'ConfigMap']
    names = [(manifest['kind'], manifest['metadata']['name']) for manifest in built]
    assert sorted(names) == sorted((manifest['kind'], manifest['metadata']['name']) for manifest in compose(folder))
    for manifest in built:
        if manifest['kind'] in ('Deployment', 'Job'):
            version = re.search(r"^  version: '(.*)',$", (ROOT / 'meson.build').read_text(), re.MULTILINE)[1]
            assert manifest['spec']['template']['spec']['containers'][0]['image'] == f'postroom:{version}'


@pytest.mark.skipif(not shutil.which('kubectl'), reason='kubectl is missing')
def W1_documented_overlays_replace_image_and_configuration(tmp_path):
    shutil.copytree(FOLDER, tmp_path / 'postroom' / 'contrib' / 'kubernetes')
    text = (ROOT / 'docs' / 'containers.md').read_text()
    overlays = re.findall(r'^    # (\w+)/kustomization.yaml\n((?:    .*\n)+)', text, re.MULTILINE)
    assert re.findall(r'kubectl apply -k (\w+)', text) == ['migrate', 'relays'] and len(overlays) == 2
    for name, lines in overlays:
        (tmp_path / name).mkdir()
        (tmp_path / name / 'kustomization.yaml').write_text(re.sub('^    ', '', lines, flags=re.MULTILINE))
        (tmp_path / name / 'postroom.yaml').write_text('# of the operator\n')
        done = subprocess.run(['kubectl', 'kustomize', tmp_path / name], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        built = {manifest['kind']: manifest for manifest in yaml.safe_load_all(done.stdout)}
        pod = built['Job' if name == 'migrate' else 'Deployment']['spec']['template']['spec']
        assert [container['image'].rpartition(':')[0] for container in pod['containers']] == ['registry.example/postroom']
        if name == 'relays':
            assert built['ConfigMap']['data'] == {'postroom.yaml': '# of the operator\n'}
            assert pod['volumes'][0]['configMap']['name'] == built['ConfigMap']['metadata']['name']


def W1_manifests_follow_the_published_schemas(tmp_path):
    home = npm('kubernetes-models@5', '@kubernetes-models/prometheus-operator@6', 'typescript@5')

    def problems(*found):
        done = subprocess.run(['node', ROOT / 'tests' / 'package' / 'kubernetes.mjs', home, tmp_path], input=json.dumps(found),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        return done.stdout
    assert problems(*manifests().values()) == ''
    wrong = copy.deepcopy(manifests())
    wrong['Deployment']['spec']['replicas'] = 'two'
    wrong['NetworkPolicy']['spec']['egres'] = []
    del wrong['ServiceMonitor']['spec']['selector']
    found = problems(wrong['Deployment'], wrong['NetworkPolicy'], wrong['ServiceMonitor'])
    assert 'Deployment: ' in found and '"egres"' in found and 'ServiceMonitor: ' in found


def W1_selectors_and_ports_find_the_relay():
    found, pod = manifests(), pods()['Deployment']
    labels = pod['metadata']['labels'].items()
    for selector in (found['Deployment']['spec']['selector']['matchLabels'], found['Service']['spec']['selector'],
                     found['PodDisruptionBudget']['spec']['selector']['matchLabels'],
                     found['NetworkPolicy']['spec']['podSelector']['matchLabels'],
                     pod['spec']['topologySpreadConstraints'][0]['labelSelector']['matchLabels']):
        assert selector.items() <= labels
    assert found['ServiceMonitor']['spec']['selector']['matchLabels'].items() <= found['Service']['metadata']['labels'].items()
    # The Job must get through the policy, but no traffic of the Service.
    job = pods()['Job']['metadata']['labels'].items()
    assert found['NetworkPolicy']['spec']['podSelector']['matchLabels'].items() <= job
    assert not found['Service']['spec']['selector'].items() <= job
    container = pod['spec']['containers'][0]
    ports = {port['name']: port['containerPort'] for port in container['ports']}
    assert ports == {'admin': 8025}
    assert found['Service']['spec']['ports'][0]['targetPort'] in ports
    assert found['ServiceMonitor']['spec']['endpoints'][0]['port'] == found['Service']['spec']['ports'][0]['name']
    assert found['NetworkPolicy']['spec']['ingress'][0]['ports'][0]['port'] in ports
    assert {container[probe]['httpGet']['port'] for probe in ('startupProbe', 'livenessProbe', 'readinessProbe')} <= set(ports)
    assert pod['spec']['serviceAccountName'] == found['ServiceAccount']['metadata']['name']
    # The alert rules name the job, which is the name of the Service.
    assert found['Service']['metadata']['name'] == 'postroom'


def W1_relays_in_kubernetes_are_replaced_without_a_gap():
    found = manifests()
    deployment = found['Deployment']['spec']
    assert deployment['replicas'] >= 2 and deployment['strategy']['rollingUpdate'] == {'maxUnavailable': 0, 'maxSurge': 1}
    assert found['PodDisruptionBudget']['spec']['minAvailable'] >= 1
    grace = int(re.search(r'^\| `relay.shutdown_grace` \| `(\d+)s`', (ROOT / 'docs' / 'configuration.md').read_text(), re.MULTILINE)[1])
    assert deployment['template']['spec']['terminationGracePeriodSeconds'] >= grace + 10


def W1_containers_in_kubernetes_have_no_privileges():
    for pod in pods().values():
        assert pod['spec']['automountServiceAccountToken'] is False and pod['spec']['enableServiceLinks'] is False
        context = pod['spec']['securityContext']
        assert context['runAsNonRoot'] is True and context['runAsUser'] == 65532
        assert context['seccompProfile'] == {'type': 'RuntimeDefault'}
        for container in pod['spec']['containers']:
            assert container['securityContext'] == {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                                                    'capabilities': {'drop': ['ALL']}}
            assert container['resources']['limits']['memory']


def W1_rules_for_the_operator_are_those_of_prometheus():
    assert manifests()['PrometheusRule']['spec'] == read(ROOT / 'contrib' / 'prometheus' / 'alerts.yml')


def W1_program_starts_as_the_manifests_start_it(postroom, tmp_path):
    """The arguments and variables of the Job and the Deployment, with a database and a port of this machine."""
    def start(kind, values):
        container = pods()[kind]['spec']['containers'][0]
        args = [str(FOLDER / 'base' / 'postroom.yaml') if arg == '/etc/postroom/postroom.yaml' else arg for arg in container['args']]
        env = {item['name']: values[item['valueFrom']['secretKeyRef']['key']] if 'valueFrom' in item else item['value']
               for item in container['env']}
        return args, env
    secrets = {'database': f'sqlite:{tmp_path}/shop.db', 'admin-token': 'change-shop', 'read-token': 'read-shop'}
    args, env = start('Job', secrets)
    postroom.ok(*args, env=env)
    args, env = start('Deployment', secrets)
    assert env['POSTROOM_ADMIN_LISTEN'] == '0.0.0.0:8025'
    container = pods()['Deployment']['spec']['containers'][0]
    with open(tmp_path / 'log', 'wb') as log:
        relay = postroom.start(*args, env={**env, 'POSTROOM_ADMIN_LISTEN': '0.0.0.0:0'}, stderr=log)
    started = wait_until(lambda: re.search(r'OUTBOX_ADMIN_LISTENING address=\S+:(\d+) ', (tmp_path / 'log').read_text()), 'the admin server')

    def answers(path, token=None):
        request = urllib.request.Request(f'http://127.0.0.1:{started[1]}{path}',
                                         headers={'Authorization': f'Bearer {token}'} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
    for probe in ('startupProbe', 'livenessProbe', 'readinessProbe'):
        wait_until(lambda path=container[probe]['httpGet']['path']: answers(path) == 200, probe)
    endpoint = manifests()['ServiceMonitor']['spec']['endpoints'][0]
    key = endpoint['authorization']['credentials']['key']
    assert (answers(endpoint['path'], secrets[key]), answers(endpoint['path'])) == (200, 401)
    relay.terminate()
    assert relay.wait() == 0
