# SPDX-License-Identifier: Apache-2.0
"""The documentation site in a browser: site.mjs has the checks."""
import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / 'tests' / 'admin'))
from browsing import BUILD, CHROMIUM, install  # noqa: E402 (the folder has to be known first)

CHECKS = re.findall(r'^\tasync (\w+)\(', (ROOT / 'tests' / 'site' / 'site.mjs').read_text(encoding='utf-8'), re.MULTILINE)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope='module')
def results(tmp_path_factory):
    for tool in ('node', 'npm', 'cmark-gfm', 'mandoc', 'scdoc'):
        if not shutil.which(tool):
            pytest.skip(f'{tool} is missing')
    if not CHROMIUM:
        pytest.skip('chromium is missing')
    install(BUILD / 'browser')
    site = tmp_path_factory.mktemp('site')
    subprocess.run([ROOT / 'tools' / 'docs', site], check=True, stdout=subprocess.DEVNULL)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(['node', ROOT / 'tests' / 'site' / 'site.mjs', BUILD / 'browser', '', f'http://127.0.0.1:{server.server_port}/'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8', check=False)
        server.shutdown()
    return done.stdout


@pytest.mark.parametrize('check', CHECKS)
def test_site(check, results):
    assert re.search(rf'^ok {check}$', results, re.MULTILINE), results
