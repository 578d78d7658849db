# SPDX-License-Identifier: Apache-2.0
"""docs/doctor.md lists every check of the program, and no other."""
import re

from conftest import ROOT

SOURCES = {'src/doctor/*.c': r'pr_check_begin\(\w+, "([a-z-]+)"', 'src/store/inspect.c': r'pr_check_begin\(\w+, "([a-z-]+)"',
           'src/store/*/doctor*.c': r'(?:pr_check_begin\([\w>-]+, |^\t\{ )"([a-z-]+)", "',
           'src/store/doctor/pgsql/*.sql': r'^-- check: ([a-z-]+)$'}


def U2_documentation_lists_every_check_and_no_other():
    checks = {name for pattern, expression in SOURCES.items() for path in ROOT.glob(pattern)
              for name in re.findall(expression, path.read_text(), re.MULTILINE)}
    assert len(checks) > 40 and {'database', 'stranded', 'file-system', 'admin'} <= checks, checks
    sections = re.split(r'^## ', (ROOT / 'docs/doctor.md').read_text(), flags=re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip('|').split(' | ')] for section in sections
            if section.startswith(('PostgreSQL', 'SQLite', 'Configuration'))
            for line in section.splitlines() if line.startswith('| `')]
    documented = {row[0].strip('`') for row in rows}
    assert documented == checks, documented ^ checks
    # Four cells: the check, its findings, why they matter to a queue, and a fix. The check sizes finds nothing.
    assert [row for row in rows if len(row) != 4 or not all(row) and row[0] != '`sizes`'] == []
