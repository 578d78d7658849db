# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a relay on SQLite, in Chromium, with real traffic."""
import re
import subprocess

import pytest

from browsing import BUILD, EXACT, HERE, TENANT, Proxy, Relay, browser, dead_letters, hostile, relay_page, variety  # noqa: F401
from conftest import ROOT, Postroom

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
def calm(tmp_path_factory):
    """A relay for the checks that change nothing, and its data."""
    directory = tmp_path_factory.mktemp('dashboard')
    postroom = Postroom(directory / 'outbox.db', directory)
    data = variety()
    yield Relay(postroom).start(data), data
    postroom.end()


def P2_overview_shows_health_numbers_and_sinks(browser, calm):
    browser.check('overview', *calm)


def P2_server_filters_messages(browser, calm):
    browser.check('messages', *calm, tenant=TENANT)


def P2_pages_show_each_message_once(browser, calm):
    browser.check('paging', *calm)


def P2_filters_survive_reload_and_back(browser, calm):
    browser.check('history', *calm)


def P2_message_shows_its_life_and_its_exact_payload(browser, calm):
    browser.check('message', *calm, payload=EXACT)


def P2_job_shows_steps_and_exact_checkpoint(browser, calm):
    browser.check('job', *calm)


def P2_workers_leases_and_findings_are_shown(browser, calm):
    browser.check('workers', *calm)


def P2_page_works_below_any_path(browser, calm):
    proxy = Proxy(calm[0])
    browser.check('prefix', proxy, calm[1])
    proxy.shutdown()
    proxy.server_close()


def P2_views_fit_from_320_pixels_to_4k(browser, calm):
    browser.check('sizes', *calm)


def P2_theme_follows_the_system_and_the_switch(browser, calm):
    browser.check('themes', *calm)


def P2_views_have_no_accessibility_violations(browser, calm):
    browser.check('accessibility', *calm)


def P2_refresh_pauses_and_stops_while_hidden(browser, calm):
    browser.check('refresh', *calm)


def P2_screenshots_are_made_of_a_relay(browser, calm):
    views = ['overview', 'messages', 'inbox', 'dead', 'workers', 'message']
    browser.check('screenshots', *calm, scene='relay', views=views)
    browser.check('screenshots', *calm, scene='narrow', views=views, size={'width': 320, 'height': 900})


def P2_overview_follows_traffic(browser, relay_page):
    browser.check('traffic', relay_page.start())


def P2_message_is_retried_and_deleted(browser, relay_page):
    data = variety()
    browser.check('actions', relay_page.start(data), data)


def P2_selected_and_matching_messages_are_changed(browser, relay_page):
    data = variety()
    browser.check('selection', relay_page.start(data), data)


def P2_dead_letters_are_grouped_by_cause_and_changed_as_group(browser, relay_page):
    data = variety()
    browser.check('groups', relay_page.start(data), data)


def P2_bulk_retry_of_5000_shows_progress_and_stops_on_request(browser, relay_page):
    browser.check('bulk', relay_page.start(dead_letters(5000)))


def P2_page_keeps_its_numbers_in_outage_and_recovers(browser, relay_page):
    browser.check('outage', relay_page.start(variety()))


def P2_hostile_message_is_only_text(browser, relay_page):
    browser.check('hostile', relay_page.start(hostile()))


def P2_read_only_mode_offers_no_changes(browser, relay_page):
    data = variety()
    browser.check('readOnly', relay_page.start(data, read_only='yes'), data)


def P2_hidden_payloads_are_not_shown(browser, relay_page):
    data = variety()
    browser.check('hiddenPayloads', relay_page.start(data, show_payloads='never'), data)


def P2_token_is_asked_for_and_kept_for_the_tab(browser, relay_page):
    data = variety()
    browser.check('token', relay_page.start(data, token='s3cret', read_token='r3ad'), data, token='s3cret', readToken='r3ad')


def P2_two_tabs_agree(browser, relay_page):
    data = variety()
    browser.check('tabs', relay_page.start(data), data)


def P2_keyboard_alone_suffices(browser, relay_page):
    data = variety()
    browser.check('keyboard', relay_page.start(data), data)


def P2_empty_views_have_a_message(browser, relay_page):
    browser.check('empty', relay_page.start())


@pytest.mark.parametrize('scene', ['busy', 'huge'])
def P2_screenshots_are_made_of_rare_states(browser, scene):
    mock = Mock(scene)
    try:
        views = ['overview', 'messages', 'dead', 'workers'] + (['message'] if scene == 'busy' else [])
        browser.check('screenshots', mock, scene=scene, views=views)
    finally:
        mock.stop()
    assert (BUILD / 'screenshots' / f'{scene}-overview-dark.png').stat().st_size > 10000


def P2_page_is_small_and_writes_only_text_nodes():
    files = {path.name: path.read_text() for path in PAGE.iterdir()}
    assert sum(len(text.encode()) for text in files.values()) <= 96 * 1024
    for name, text in files.items():
        for banned in (r'innerHTML', r'outerHTML', r'insertAdjacentHTML', r'document\.write', r'\beval\b', r'new Function',
                       r'setAttribute\(.style.', r'srcdoc', r'DOMParser', r'createContextualFragment'):
            assert not re.search(banned, text), f'{name}: {banned}'
        # Only names of XML namespaces are absolute.
        assert not [url for url in re.findall(r'https?://[^\s\'"]+', text) if 'www.w3.org' not in url], name
        assert not re.search(r'(?:href|src|from|fetch\()\s*=?\s*[\'"`]/', text), f'{name}: an absolute path'
    html = files['index.html']
    assert not re.search(r'<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)', html)
