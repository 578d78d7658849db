// SPDX-License-Identifier: Apache-2.0
// Retry or delete many messages: a preview with the exact count, then parts, with progress.
// Stopping means not asking for the next part.
import { messagePath, send } from './core.js';
import { h, icon } from './dom.js';
import { CAP, count, duration, plural, visible } from './format.js';
import { button, clip, isFinished, openDialog, pair, toast } from './parts.js';

const PART = 200;
const PART_MAXIMUM = 2000;
const TYPE_ABOVE = 100;
const WORDS = {
	retry: { verb: 'Retry', done: 'Retried', canChange: (row) => row.status === 'dead', rule: 'Only dead messages can be retried.' },
	delete: { verb: 'Delete', done: 'Deleted', canChange: isFinished, rule: 'Only delivered, completed and dead messages can be deleted.' },
};

export function actOnRow(action, table, row) {
	return action === 'retry' ? send('POST', `${messagePath(table, row)}/retry`, {}) : send('DELETE', messagePath(table, row));
}

// rows: these messages; filter: all that match it. words: the filter for people, [[name, value]].
export function bulk({ action, table, rows, filter, words = [], onEnd }) {
	const { verb, done, canChange, rule } = WORDS[action];
	const isDelete = action === 'delete';
	const chosen = rows?.filter(canChange);
	if (rows && !chosen.length) {
		toast(rule, 'warn');
		return;
	}
	const run = { stage: rows ? 'ready' : 'counting', total: chosen?.length, done: 0, failed: 0, typed: '', rate: '', examples: [] };
	const show = (stage, error) => {
		Object.assign(run, { stage, error });
		dialog.redraw();
		dialog.querySelector('[autofocus]:not(:disabled)')?.focus();
	};

	async function preview() {
		try {
			const { matched, examples = [] } = await send('POST', `${table}/${action}`, { filter, dry_run: true });
			Object.assign(run, { total: matched, examples });
			show('ready');
		} catch (error) {
			show('ended', error.message);
		}
	}

	async function runRows() {
		for (const row of chosen.slice(run.done + run.failed)) {
			if (run.isStopped) return;
			try {
				await actOnRow(action, table, row);
				run.done++;
			} catch (error) {
				if (!error.status) throw error;
				run.failed++;
				run.failure = error.message;
			}
			dialog.redraw();
		}
	}

	async function runFilter() {
		const rate = Number(run.rate);
		let part = PART;
		while (!run.isStopped && run.done < run.total) {
			const begun = performance.now();
			const limit = Math.min(rate || part, PART_MAXIMUM, run.total - run.done);
			const answer = await send('POST', `${table}/${action}`, { filter, dry_run: false, limit });
			run.done += answer.done;
			dialog.redraw();
			if (!answer.more || !answer.done) return;
			const took = performance.now() - begun;
			part = took < 300 ? Math.min(part * 2, PART_MAXIMUM) : Math.max(50, Math.round(part / 2));
			if (rate) await new Promise((resolve) => { run.wake = resolve; setTimeout(resolve, answer.done / rate * 1000 - took); });
		}
	}

	async function start() {
		run.startedAt ??= performance.now();
		run.isStopped = false;
		show('running');
		const error = await (rows ? runRows() : runFilter()).then(() => null, (reason) => reason.message);
		run.seconds = (performance.now() - run.startedAt) / 1000;
		show('ended', error);
	}

	const mustType = () => isDelete && run.total > TYPE_ABOVE;
	const isConfirmed = () => !mustType() || run.typed.replace(/[,. ]/g, '') === String(run.total);
	const close = (text, attributes) => button(null, text, () => dialog.close(), attributes);

	function what() {
		if (rows?.length === 1) return h('p', `${verb} the message `, h('code', visible(rows[0].id)), '?');
		return [h('p.big', h('strong', { 'data-matched': run.total }, count(run.total, true)),
			`${run.total === 1 ? 'message' : 'messages'} ${rows ? 'selected' : run.total === 1 ? 'matches' : 'match'}`),
		h('dl.pairs', words.map(([name, text]) => pair(name, clip(text, { focusable: true })))),
		rows?.length > chosen?.length && h('p.faint', `${rule} ${plural(rows.length - chosen.length, 'selected message')} left out.`),
		!rows && run.total >= CAP && h('p', `This ${isDelete ? 'deletes' : 'retries'} ${count(run.total)} of them. Repeat it for the rest.`),
		run.examples.length > 0 && h('p.faint', 'For example ', run.examples.slice(0, 3).map((id, at) => [at > 0 && ', ', h('code', visible(id))]))];
	}

	function input(label, attributes) {
		return h('label.field.narrow', h('span', label), h('input', { autocomplete: 'off', inputmode: 'numeric', ...attributes }));
	}

	function ready() {
		if (!run.total) return [h('div.dialog-body', h('p', 'No message matches. There is nothing to do.')), h('div.dialog-foot', close('Close'))];
		return h('form', { onsubmit: (event) => { event.preventDefault(); if (isConfirmed()) start(); } },
			h('div.dialog-body', what(),
				h('p', isDelete ? h('strong', 'This cannot be undone.') : 'Retried messages are pending again, with no attempts counted, at the end of the order of their key.'),
				!isDelete && !rows && input('Messages per second', { type: 'number', name: 'rate', min: '1', placeholder: 'no limit', value: run.rate,
					oninput: ({ target }) => { run.rate = target.value; } }),
				mustType() && input(`Type ${count(run.total)} to confirm`, { name: 'confirm', value: run.typed, autofocus: true,
					oninput: ({ target }) => { run.typed = target.value; dialog.redraw(); } })),
			h('div.dialog-foot', close('Cancel'),
				h('button', { type: 'submit', 'data-run': true, class: isDelete ? 'danger solid' : 'primary', disabled: !isConfirmed(), autofocus: !mustType() },
					icon(isDelete ? 'trash' : 'retry'), `${verb} ${plural(run.total, 'message')}`)));
	}

	function running() {
		const part = (run.done + run.failed) / run.total;
		const seconds = (performance.now() - run.startedAt) / 1000;
		const left = Number(run.rate) ? (run.total - run.done) / run.rate : seconds / part - seconds;
		return [h('div.dialog-body',
			h('div.progress', { role: 'progressbar', label: verb, 'aria-valuemax': run.total, 'aria-valuenow': run.done }, h('div', { style: { width: `${part * 100}%` } })),
			h('p', h('strong', { 'data-done': run.done }, count(run.done)), ` of ${count(run.total)}`,
				left >= 1 && (run.rate || part > 0.02) && h('span.faint', ` · about ${duration(left)} left`))),
		h('div.dialog-foot', button('stop', run.isStopped ? 'Stopping…' : 'Stop', () => { run.isStopped = true; run.wake?.(); dialog.redraw(); },
			{ 'data-stop': true, autofocus: true, disabled: run.isStopped }))];
	}

	function ended() {
		const left = run.total - run.done - run.failed;
		return [h('div.dialog-body', { role: 'status' },
			h('p.big', { 'data-ended': run.done }, icon(run.error ? 'alert' : 'check'), `${done} ${plural(run.done, 'message')}`, run.seconds >= 1 && h('span.faint', `in ${duration(run.seconds)}`)),
			run.error && h('p.error-text', `${run.error}.`),
			run.failed > 0 && h('p.error-text', `${plural(run.failed, 'message')} not changed: ${visible(run.failure)}`),
			left > 0 && h('p', `${plural(left, 'message')} ${run.isStopped || run.error ? 'left as before' : 'no longer matched'}.`)),
		h('div.dialog-foot', left > 0 && button(null, 'Continue', start), close('Close', { class: 'primary', autofocus: true }))];
	}

	function content() {
		if (run.stage === 'counting') return h('div.dialog-body', h('p.loading', 'Counting…'));
		return { ready, running, ended }[run.stage]();
	}

	const dialog = openDialog(`${verb} messages`, content, { canClose: () => run.stage !== 'running', onClose: () => run.done && onEnd() });
	if (!rows) preview();
}
