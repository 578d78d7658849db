// SPDX-License-Identifier: Apache-2.0
// Searches the sections of all pages: every word of the query must begin a word of the section.
// Also lets the keyboard scroll what is wider than the window.
'use strict';

const query = document.getElementById('query');
const results = document.getElementById('results');
const root = document.body.dataset.root;
const sections = window.searchIndex.flatMap(([page, title, parts]) => parts.map(([anchor, heading, text]) => ({
	address: `${root}${page}#${anchor}`,
	title,
	heading,
	text,
	headingWords: `${title} ${heading}`.toLowerCase(),
	words: ` ${title} ${heading} ${text}`.toLowerCase(),
})));

function score(section, terms) {
	let sum = 0;
	for (const term of terms) {
		const at = section.words.search(new RegExp(`[^a-z0-9]${term.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}`));
		if (at < 0)
			return 0;
		sum += section.headingWords.includes(term) ? 10 : 1;
	}
	return sum;
}

function excerpt(section, term) {
	const at = Math.max(0, section.text.toLowerCase().indexOf(term) - 50);
	return (at > 0 ? '… ' : '') + section.text.slice(at, at + 160);
}

function show() {
	const terms = query.value.toLowerCase().split(/\s+/).filter(Boolean);
	const found = terms.length === 0 ? [] : sections
		.map((section) => ({ section, points: score(section, terms) }))
		.filter(({ points }) => points > 0)
		.sort((a, b) => b.points - a.points)
		.slice(0, 20);
	results.replaceChildren(...found.map(({ section }) => {
		const item = document.createElement('li');
		const link = document.createElement('a');
		const small = document.createElement('small');
		link.href = section.address;
		link.textContent = section.heading === section.title ? section.title : `${section.title}: ${section.heading}`;
		small.textContent = excerpt(section, terms[0]);
		link.append(small);
		item.append(link);
		return item;
	}));
	if (terms.length > 0 && found.length === 0) {
		const item = document.createElement('li');
		item.textContent = 'Nothing found';
		results.append(item);
	}
	results.hidden = terms.length === 0;
}

query.addEventListener('input', show);
query.addEventListener('keydown', (event) => {
	if (event.key === 'Enter')
		results.querySelector('a')?.click();
	if (event.key === 'Escape') {
		query.value = '';
		show();
	}
});
document.addEventListener('keydown', (event) => {
	if (event.key === '/' && document.activeElement !== query) {
		event.preventDefault();
		query.focus();
	}
});
for (const node of document.querySelectorAll('pre, table')) {
	if (node.scrollWidth > node.clientWidth)
		node.tabIndex = 0;
}
