// SPDX-License-Identifier: Apache-2.0
// Runs before the first paint, so that a chosen theme does not flash.
try {
	document.documentElement.dataset.theme = localStorage.getItem('postroom.theme') || 'system';
} catch { /* no storage: the theme of the system */ }
