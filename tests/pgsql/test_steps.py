# SPDX-License-Identifier: Apache-2.0
"""Steps and checkpoints of a shell handler, on PostgreSQL."""
WORKER = '0f5a3c1e-7b2d-4e9a-8c11-2233445566aa'


def J2_steps_and_checkpoints_are_found_in_the_schema_that_consume_names(unmigrated, sql):
    sql('CREATE SCHEMA jobs')
    unmigrated.ok('migrate', '--schema', 'jobs')
    unmigrated.ok('inbox', 'submit', 'import', 'j-1', '--schema', 'jobs')
    sql(f"UPDATE jobs.postroom_inbox SET status = 'active', locked_by = '{WORKER}', locked_until = now(), claims = 7")
    env = {'POSTROOM_SCHEMA': 'jobs', 'POSTROOM_HANDLER': 'import', 'POSTROOM_ID': 'j-1', 'POSTROOM_CLAIM': '7'}

    # jsonb keeps its members in an order of its own.
    names = ['a long name', 'b', 'it\'s "$[0]"']
    for name in names:
        assert unmigrated.ok('step', name, '--', 'printf', r'1\t%s', name, env=env).out == f'1\t{name}'
    for name in names:
        assert unmigrated.ok('step', name, '--', 'false', env=env).out == f'1\t{name}'
    assert [step['name'] for step in unmigrated.ok('step', '--show', '--json', env=env).objects] == names
    unmigrated.ok('checkpoint', '{"page": 2}', env=env)
    assert unmigrated.ok('checkpoint', env=env).out == '{"page": 2}\n'
    late = {**env, 'POSTROOM_CLAIM': '6'}
    assert "belongs to another worker" in unmigrated.fails(1, 'checkpoint', '1', env=late)
    assert unmigrated.ok('checkpoint', env=env).out == '{"page": 2}\n'
