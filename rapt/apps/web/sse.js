// SPDX-License-Identifier: Apache-2.0
// Server-sent events from a fetch's body: the data of each event, in order.
//   event = { line "\n" } "\n";  line = ":" comment | "data:" [" "] text | other field (ignored)
const kMostWaiting = 8 << 20;  // characters without an end of line: no server of ours does that

export class EventReader {
  constructor(take) {
    this.take = take;
    this.rest = '';
    this.data = [];
  }

  push(text) {
    this.rest += text;
    if (this.rest.length > kMostWaiting) throw new Error('an event without an end');
    let from = 0;
    for (let end; (end = this.rest.indexOf('\n', from)) >= 0; from = end + 1)
      this.line(this.rest.slice(from, this.rest[end - 1] === '\r' ? end - 1 : end));
    this.rest = this.rest.slice(from);
  }

  line(line) {
    if (line === '') {
      if (this.data.length) this.take(this.data.join('\n'));
      this.data = [];
    } else if (line.startsWith('data:')) {
      this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}

// Reads a response to its end; take(data) for each event. Bytes of one character may lie in two pieces.
export async function readEvents(response, take) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  const events = new EventReader(take);
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    events.push(decoder.decode(value, {stream: true}));
  }
}
