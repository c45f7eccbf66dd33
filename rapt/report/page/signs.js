// SPDX-License-Identifier: Apache-2.0
// Tokens as people read them. Shared by the report and the page of `rapt serve`.

// A token where spaces should be seen; what would move text around is shown as a sign.
export function plain(text) {
  return text.replace(/\n/g, '↵')
      .replace(/\t/g, '⇥')
      .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
      .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}
export const shown = (text) =>
    text === '' ? '∅' : plain(text).replace(/^ +| +$/g, (s) => '␣'.repeat(s.length));
