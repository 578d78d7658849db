# SPDX-License-Identifier: Apache-2.0
"""Errors of a PostgreSQL database say what failed, why, and what to do: the reviewed list is errors.txt."""
import importlib.util
import pathlib

import pytest
from conftest import PROGRAM

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location('cli_errors', HERE.parent / 'cli' / 'errors.py')
errors = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(errors)
SECTIONS, _ = errors.read_list(HERE / 'errors.txt')


@pytest.mark.parametrize('section', SECTIONS)
def Z1_errors_are_those_of_the_reviewed_list(section, tmp_path, db):
    place = errors.Place(tmp_path, PROGRAM, db)
    wrong = [f'$ {command}\n{found}\ninstead of\n{expected}' for command, expected in SECTIONS[section]
             if (found := place.run(command)) != expected]
    assert not wrong, '\n\n'.join(wrong)
