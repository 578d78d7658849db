# SPDX-License-Identifier: Apache-2.0
"""The dashboard with SQLite; its files, and states that are imitated."""
import re
import subprocess

import pytest

from browsing import BUILD, HERE
from conftest import ROOT, Postroom
from dashboard_cases import *  # noqa: F401,F403 -- the tests, with SQLite

PAGE = ROOT / 'src' / 'admin' / 'page'


class Mock:
    """mock.mjs instead of a relay: for screenshots of states that take a relay hours to reach."""

    def __init__(self, scene):
        self.process = subprocess.Popen(['node', HERE / 'mock.mjs', '0', scene], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope='module')
def calm_postroom(tmp_path_factory):
    directory = tmp_path_factory.mktemp('dashboard')
    return Postroom(directory / 'outbox.db', directory)


def check_scene(browser, scene, name):
    mock = Mock(scene)
    try:
        browser.check(name, mock)
    finally:
        mock.stop()


def P2_age_of_counts_is_shown_when_the_server_counts_rarely(browser):
    check_scene(browser, 'huge', 'countAge')


def P2_reasons_are_in_words_with_their_beginning_worst_first(browser):
    check_scene(browser, 'huge', 'reasons')


def P2_counts_that_end_early_have_a_plus(browser):
    check_scene(browser, 'huge', 'capped')


def P2_single_value_between_gaps_is_visible(browser):
    check_scene(browser, 'calm', 'sparse')


def P2_figures_by_topic_are_reported_as_a_sample(browser):
    check_scene(browser, 'huge', 'sample')


def P2_long_values_are_readable_at_any_width(browser):
    check_scene(browser, 'long', 'longValues')


@pytest.mark.parametrize('scene', ['busy', 'huge', 'long'])
def P2_screenshots_are_made_of_rare_states(browser, scene):
    mock = Mock(scene)
    try:
        views = ['overview', 'messages', 'dead', 'workers'] + ([] if scene == 'huge' else ['message'])
        browser.check('screenshots', mock, scene=scene, views=views)
    finally:
        mock.stop()
    assert (BUILD / 'screenshots' / f'{scene}-overview-dark.png').stat().st_size > 10000


def P2_page_as_served_has_at_most_96_kilobytes(calm):
    served = {path.name: calm[0].admin('GET', '/' + path.name).body for path in PAGE.iterdir()}
    for name, body in served.items():
        lines = [line.lstrip('\t') for line in (PAGE / name).read_text().split('\n')]
        code = [line for line in lines if not re.fullmatch(r'//.*' if name.endswith('.js') else r'/\*[^*]*\*/', line)]
        assert body.decode() == '\n'.join(code), name
    assert sum(map(len, served.values())) <= 96 * 1024


def P2_page_writes_only_text_nodes():
    files = {path.name: path.read_text() for path in PAGE.iterdir()}
    for name, text in files.items():
        for banned in (r'innerHTML', r'outerHTML', r'insertAdjacentHTML', r'document\.write', r'\beval\b', r'new Function',
                       r'setAttribute\(.style.', r'srcdoc', r'DOMParser', r'createContextualFragment'):
            assert not re.search(banned, text), f'{name}: {banned}'
        # Only names of XML namespaces are absolute.
        assert not [url for url in re.findall(r'https?://[^\s\'"]+', text) if 'www.w3.org' not in url], name
        assert not re.search(r'(?:href|src|from|fetch\()\s*=?\s*[\'"`]/', text), f'{name}: an absolute path'
    html = files['index.html']
    assert not re.search(r'<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)', html)
