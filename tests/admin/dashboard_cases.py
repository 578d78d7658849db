# SPDX-License-Identifier: Apache-2.0
"""What the dashboard of a relay does in Chromium, with real traffic, for either database:
test_dashboard.py and pgsql/test_dashboard.py run these. Each has a fixture calm_postroom."""
import pytest

from browsing import EXACT, TENANT, Proxy, Relay, browser, dead_letters, hostile, many_causes, relay_page, variety  # noqa: F401


@pytest.fixture(scope='module')
def calm(calm_postroom):
    """A relay for the checks that change nothing, and its data."""
    data = variety()
    yield Relay(calm_postroom).start(data), data
    calm_postroom.end()


def P2_overview_shows_health_numbers_and_sinks(browser, calm):
    browser.check('overview', *calm)


def P2_server_filters_messages(browser, calm):
    browser.check('messages', *calm, tenant=TENANT)


def P2_wrong_filter_is_explained_and_shows_no_rows(browser, calm):
    browser.check('badFilters', *calm)


def P2_export_has_the_rows_of_the_filter(browser, calm):
    browser.check('exports', *calm)


def P2_pages_show_each_message_once(browser, calm):
    browser.check('paging', *calm)


def P2_filters_survive_reload_and_back(browser, calm):
    browser.check('history', *calm)


def P2_message_shows_its_life_and_its_exact_payload(browser, calm):
    relay, data = calm
    # jsonb has its own spaces and order: the page shows them as they are stored.
    stored = relay.admin.get(f'/api/v1/outbox/{data.ids["exact"]}')['payload_text']
    assert '9007199254740993' in stored and '1.10' in stored and (stored == EXACT or 'postgres' in relay.postroom.db)
    browser.check('message', *calm, payload=stored)


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


def P2_refresh_backs_off_up_to_30_seconds_in_an_outage(browser, calm):
    browser.check('backoff', *calm)


def P2_screenshots_are_made_of_a_relay(browser, calm):
    views = ['overview', 'messages', 'inbox', 'dead', 'workers', 'message']
    scene = 'postgres-' if 'postgres' in calm[0].postroom.db else ''
    for name, width, height in (('relay', 1280, 900), ('narrow', 320, 900), ('4k', 3840, 2160)):
        browser.check('screenshots', *calm, scene=scene + name, views=views, size={'width': width, 'height': height})


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


def P2_groups_beyond_the_first_100_are_announced(browser, relay_page):
    browser.check('causes', relay_page.start(many_causes()))


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
