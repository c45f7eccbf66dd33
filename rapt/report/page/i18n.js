// SPDX-License-Identifier: Apache-2.0
// Words of the page in English and Chinese; numbers and tokens as people read them.
const kWords = {
  en: {
    other: '中文', other_label: '切换到中文', dark: 'Dark', light: 'Light', bar: 'What is chosen',
    text: 'Text', colour: 'Colour', attention: 'attention of the chosen token', none: 'none',
    heads: 'Heads', metric: 'Figure shown', table: 'As a table', scale: 'Scale', root: 'square root', linear: 'linear',
    all: 'All heads at a glance', layers: 'Layer by layer', grid: 'Figure shown',
    out: 'Looks at', in: 'Looked at by', facts: 'Figures of this head', nothing: 'none', no_map: 'no map of this head',
    layer: 'Layer', head: 'Head', token: 'Token', keys_axis: 'keys →', queries_axis: 'queries ↓', deep_axes: 'layers → heads ↓', wide_axes: 'heads → layers ↓',
    head_title: 'Layer {l}, head {h}', arcs_title: 'From {t}', previous: 'previous', next: 'next',
    head_read: 'Layer {l}, head {h}: {v}{label}', map_read: '{q} → {k}: {v}', map_pooled: ' (largest of {n} tokens)',
    grid_read: '{row}, {t}: {v}{said}', strip_read: '{t}: id {id}{v}', says: ', says {x}', no_number: 'no number',
    live: 'Layer {l}, head {h}{label}; token {t}',
    footer: 'Made by Rapt. This file asks the network for nothing.',
    keys: 'Arrow keys move inside a picture, Tab goes to the next. The address in the browser keeps what is chosen.',
    old: 'This browser cannot unpack the numbers of this page; a newer one can.',
    map_label: 'Attention map of layer {l}, head {h}', heads_label: 'Heads by {m}', all_label: 'Attention maps of all heads', grid_label: '{g}, layer by token',
  },
  zh: {
    other: 'English', other_label: 'Switch to English', dark: '深色', light: '浅色', bar: '当前选择',
    text: '文本', colour: '着色', attention: '所选词元的注意力', none: '无',
    heads: '注意力头', metric: '显示的指标', table: '以表格显示', scale: '刻度', root: '平方根', linear: '线性',
    all: '所有注意力头一览', layers: '逐层观察', grid: '显示的指标',
    out: '关注', in: '被谁关注', facts: '该头的各项指标', nothing: '无', no_map: '该头没有注意力图',
    layer: '层', head: '头', token: '词元', keys_axis: '键 →', queries_axis: '查询 ↓', deep_axes: '层 → 头 ↓', wide_axes: '头 → 层 ↓',
    head_title: '第 {l} 层，第 {h} 头', arcs_title: '从 {t} 出发', previous: '上一个', next: '下一个',
    head_read: '第 {l} 层，第 {h} 头：{v}{label}', map_read: '{q} → {k}：{v}', map_pooled: '（{n} 个词元中的最大值）',
    grid_read: '{row}，{t}：{v}{said}', strip_read: '{t}：编号 {id}{v}', says: '，预测 {x}', no_number: '无数值',
    live: '第 {l} 层，第 {h} 头{label}；词元 {t}',
    footer: '由 Rapt 生成。本文件不访问网络。',
    keys: '方向键在图内移动，Tab 键转到下一处。浏览器地址记录当前选择。',
    old: '此浏览器无法解压本页的数据，请使用较新的浏览器。',
    map_label: '第 {l} 层第 {h} 头的注意力图', heads_label: '注意力头：{m}', all_label: '所有头的注意力图', grid_label: '{g}，层 × 词元',
  },
};
// Names that the program gives in English, by their keys.
const kNames = {
  first: '对首词元的权重', self: '对自身的权重', previous: '对前一词元的权重', entropy: '熵（奈特）', distance: '平均距离',
  variance: '距离的方差', induction: '归纳分数', strongest: '最大权重（首词元除外）', max_logit: '最大得分', gate: '门的均值', gate_closed: '关闭的门的比例',
  massive: '巨大激活：log10（最大值 / 中位数）', residual: '残差流的范数', attn_out: '注意力输出的范数', ffn_out: '前馈输出的范数',
  lens: '逐层预测（logit lens）：首选的概率', lens_truth: '逐层预测：真实词元的概率', lens_entropy: '逐层预测：熵（奈特）',
};
// What the label of a head begins with.
const kLabels = [['sink', '汇聚'], ['previous token', '前一词元'], ['self', '自身'], ['induction', '归纳'], ['uniform', '均匀']];

function tr(key, values = {}) {
  return kWords[state.lang][key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
const nameOf = (x) => state.lang === 'zh' && kNames[x.key] ? kNames[x.key] : x.name;
function labelOf(layer, head) {
  const label = data.labels[layer * data.heads + head] || '';
  if (state.lang === 'en') return label;
  const known = kLabels.find(([english]) => label.startsWith(english));
  return known ? known[1] + label.slice(known[0].length) : label;
}
const withLabel = (label) => label ? ` · ${label}` : '';

// A token where spaces should be seen; what would move text around is shown as a sign.
function plain(text) {
  return text.replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
      .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}
const shown = (text) => text === '' ? '∅' : plain(text).replace(/^ +| +$/g, (s) => '␣'.repeat(s.length));
const quoted = (t) => `${t} “${shown(data.tokens[t])}”`;

function number(x) {
  if (!Number.isFinite(x)) return tr('no_number');
  const size = Math.abs(x);
  if (size >= 1e5 || (size > 0 && size < 5e-4)) return x.toExponential(1);
  return x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

function words() {
  document.documentElement.lang = state.lang === 'zh' ? 'zh-Hans' : 'en';
  for (const e of document.querySelectorAll('[data-text]')) e.textContent = tr(e.dataset.text);
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', tr(e.dataset.label));
}
