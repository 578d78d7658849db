# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys
import uuid

import pytest

from conftest import Postroom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'admin'))

from dashboard_cases import *  # noqa: E402,F401,F403 -- the tests, with PostgreSQL


@pytest.fixture(scope='module')
def calm_postroom(shared, tmp_path_factory):
    name = f'test_{uuid.uuid4().hex}'
    shared.sql('postgres', f'CREATE DATABASE {name}')
    yield Postroom(shared.url(name), tmp_path_factory.mktemp('dashboard'))
    shared.sql('postgres', f'DROP DATABASE {name} WITH (FORCE)')
