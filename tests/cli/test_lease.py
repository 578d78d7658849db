# SPDX-License-Identifier: Apache-2.0
"""lease: how the messages of a database are claimed."""


def C7_lease_kind_of_a_database_is_shown(postroom):
    postroom.ok('migrate')
    assert postroom.ok('lease').out == 'row\n'
    assert postroom.ok('lease', '--json').object == {'lease': 'row'}
    assert postroom.ok('lease', 'row').out == 'row\n'


def C7_sqlite_has_no_lanes(postroom):
    postroom.ok('migrate')
    assert 'leased by row' in postroom.fails(1, 'lease', 'lane')
    assert postroom.ok('lease').out == 'row\n'
