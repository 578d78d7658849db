# SPDX-License-Identifier: Apache-2.0
"""Errors say what failed, why, and what to do: the reviewed list is errors.txt."""
import pathlib
import re

import pytest
from conftest import PROGRAM

import errors

LIST = pathlib.Path(__file__).parent / 'errors.txt'
SECTIONS, ELSEWHERE = errors.read_list(LIST)
REPORTING = ('src/cli/*.c', 'src/config/*.c', 'src/core/message.c', 'src/base/param.c', 'src/base/time.c', 'src/base/url.c',
             'src/admin/*.c', 'src/broker/*.c', 'src/consume/*.c', 'src/inbox/*.c', 'src/net/*.c', 'src/outbox/*.c', 'src/relay/*.c',
             'src/sink/*.c', 'src/store/*.c', ':!src/store/pgsql/*.c')  # tests/pgsql/errors.txt has those of PostgreSQL


@pytest.mark.parametrize('section', SECTIONS)
def G1_errors_are_those_of_the_reviewed_list(section, tmp_path):
    place = errors.Place(tmp_path, PROGRAM)
    wrong = [f'$ {command}\n{found}\ninstead of\n{expected}' for command, expected in SECTIONS[section]
             if (found := place.run(command)) != expected]
    assert not wrong, '\n\n'.join(wrong)


def G1_every_error_message_of_the_program_is_reviewed():
    shown = '\n'.join(text for commands in SECTIONS.values() for _, text in commands)
    missing = [message for message in dict.fromkeys(errors.messages_of(*REPORTING))
               if message not in ELSEWHERE and not errors.pattern_of(message).search(shown)]
    assert not missing, 'add a command to errors.txt, or list them at its end:\n' + '\n'.join(missing)


def G1_messages_listed_as_unreachable_exist():
    known = set(errors.messages_of(*REPORTING))
    assert [message for message in ELSEWHERE if message not in known and not message.startswith('#')] == []


def G1_every_listed_error_is_one_sentence_with_its_subject():
    for commands in SECTIONS.values():
        for command, text in commands:
            lines = text.split('\n')
            assert re.fullmatch(r'exit status [12]', lines[-1]), command
            assert lines[0].startswith('postroom: '), command
            assert not re.search(r'(?<!\.\.)[.!]$', lines[0]), command
