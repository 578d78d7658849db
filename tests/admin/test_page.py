# SPDX-License-Identifier: Apache-2.0
"""The dashboard in short, for the builds with sanitizers; test_dashboard.py has all checks."""
from browsing import browser, relay_page, variety  # noqa: F401


def P2_page_works_with_sanitizers(browser, relay_page):
    data = variety()
    relay_page.start(data)
    browser.check('overview', relay_page, data)
    browser.check('actions', relay_page, data)
    relay_page.admin.stop()
