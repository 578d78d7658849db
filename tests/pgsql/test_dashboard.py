# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a relay on PostgreSQL, in Chromium. tests/admin/test_dashboard.py has all checks."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'admin'))

from browsing import TENANT, browser, dead_letters, hostile, relay_page, variety  # noqa: E402,F401


def P2_views_show_data_of_postgres(browser, relay_page):
    data = variety()
    relay_page.start(data)
    browser.check('overview', relay_page, data)
    browser.check('messages', relay_page, data, tenant=TENANT)
    browser.check('paging', relay_page, data)
    browser.check('job', relay_page, data)
    browser.check('workers', relay_page, data)
    # jsonb has its own spaces and order: the page shows them as they are stored.
    stored = relay_page.admin.get(f'/api/v1/outbox/{data.ids["exact"]}')['payload_text']
    assert '9007199254740993' in stored and '1.10' in stored
    browser.check('message', relay_page, data, payload=stored)


def P2_overview_follows_traffic(browser, relay_page):
    browser.check('traffic', relay_page.start())


def P2_message_is_retried_and_deleted(browser, relay_page):
    data = variety()
    relay_page.start(data)
    browser.check('actions', relay_page, data)


def P2_dead_letters_are_grouped_by_cause_and_changed_as_group(browser, relay_page):
    data = variety()
    browser.check('groups', relay_page.start(data), data)


def P2_bulk_retry_of_5000_shows_progress_and_stops_on_request(browser, relay_page):
    browser.check('bulk', relay_page.start(dead_letters(5000)))


def P2_hostile_message_is_only_text(browser, relay_page):
    browser.check('hostile', relay_page.start(hostile()))
