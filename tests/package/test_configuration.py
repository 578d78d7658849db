# SPDX-License-Identifier: Apache-2.0
"""The configuration file of the Debian package."""
import re

from conftest import ROOT


def G1_packaged_configuration_is_valid_without_its_comment_signs(postroom, tmp_path):
    _, example = (ROOT / 'contrib' / 'debian' / 'postroom.yaml').read_text().split('\n\n')
    path = tmp_path / 'postroom.yaml'
    path.write_text(re.sub('^#', '', example, flags=re.MULTILINE))
    env = {'POSTROOM_DB': ''}  # which would override that of the file
    checked = postroom.ok('-c', path, 'relay', '--check', env={**env, 'SHOP_PASSWORD': 'pa55'}).out
    assert 'postgres://relay:' in checked and 'redis://localhost/orders' in checked and 'pa55' not in checked
    assert 'SHOP_PASSWORD' in postroom.fails(2, '-c', path, 'relay', '--check', env=env)
