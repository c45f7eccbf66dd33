// SPDX-License-Identifier: Apache-2.0
import {el} from '/page/shared/dom.js';

export function mount(panel) { panel.append(el('p', {'data-text': 'lab_about'})); }
