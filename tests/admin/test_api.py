# SPDX-License-Identifier: Apache-2.0
from api_cases import *  # noqa: F401,F403 -- the tests, with SQLite
