// SPDX-License-Identifier: Apache-2.0
// What was found out, as a list of sentences, and what an edit changed.
import {editWords} from '/page/edits.js';
import {tr} from '/page/i18n.js';
import {el} from '/page/shared/dom.js';
import {number} from '/page/shared/numbers.js';

import * as findings from './findings.js';
import {editButton, heading, section} from './parts.js';
import {on, pick, quoted, seen} from './seen.js';

const named = (edit) => editWords(edit) ? `${editWords(edit)} (${edit})` : edit;

export function saidPart() {
  const list = el('ul', {className: 'findings'}), effect = el('div', {className: 'effect', role: 'status'});
  const draw = () => {
    if (!seen.all) {
      list.replaceChildren();
      effect.replaceChildren();
      return;
    }
    const plain = seen.base || seen.all;
    const said = findings.sentences({all: plain, maps: seen.base ? null : seen.maps, ...seen.extra}, quoted);
    if (seen.base && seen.subject.looked) said.splice(1, 0, seen.subject.looked);
    if (!seen.base) seen.subject.looked = said.find(([name]) => name === 'looked') || null;
    list.replaceChildren(...said.map(([name, text, edit]) => {
      const item =
          el('li', {'data-finding': name}, el('b', {textContent: tr(`inside_lead_${name}`)}),
             el('span', {}, el('span', {className: 'finding-words', textContent: text}),
                ...(edit ? [' ', editButton(edit, 'inside_do', 'inside_undo')] : [])));
      return item;
    }));
    effect.hidden = !seen.base;
    if (!seen.base) return;
    const a = seen.base.tokens, b = seen.all.tokens,
          by = seen.base.heads && seen.all.heads ? findings.changed(seen.base, seen.all, pick.metric) : [];
    const names = by.map(([i, x, y]) => tr('inside_changed_head', {
                           l: Math.floor(i / seen.all.shape.heads),
                           h: i % seen.all.shape.heads,
                           a: number(x),
                           b: number(y)
                         }));
    effect.replaceChildren(
        el('p', {
          textContent: tr('inside_effect', {
            edits: seen.all.edits.map(named).join(tr('inside_comma')),
            a: findings.big(a.perplexity),
            b: findings.big(b.perplexity),
            by: findings.change(a.perplexity, b.perplexity),
            la: number(a.loss),
            lb: number(b.loss)
          })
        }),
        ...(names.length ? [el('p', {
          textContent: tr(
              'inside_changed', {m: findings.metricName(pick.metric), list: names.join(tr('inside_comma'))})
        })] :
                           []),
        el('p', {className: 'hint', textContent: tr('inside_edit_answers')}));
  };
  on('all maps extra lang metric', draw);
  return section('findings', heading('inside_findings'), list, effect);
}
