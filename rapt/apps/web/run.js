// SPDX-License-Identifier: Apache-2.0
// One answer on its way: the request, its stream, Stop, and going on after a reload (the server keeps the
// events of a stream for a minute: docs/serving.md). What comes is gathered in an Answer.
import {ApiError, apiError, ask} from './api.js';
import {readEvents} from './sse.js';

const kTop = 5;  // alternatives of each token

// What a stream said so far. `tokens`: [{text, id, logprob, top: [[text, logprob]]}], as history keeps them.
export class Answer {
  constructor(from = {}) {
    Object.assign(
        this, {
          text: '',
          reasoning: '',
          tokens: [],
          promptIds: null,
          events: 0,
          progress: null,
          usage: null,
          timings: null,
          finish: '',
          detail: '',
          seed: null,
          hash: '',
          began: 0,
          last: 0
        },
        from);
    this.ids = this.tokens.map((t) => t.id);
    this.waiting = [];  // tokens that came before their ids
  }

  take(chunk) {
    if (chunk.error) throw apiError(500, chunk.error);
    const now = performance.now();
    if (chunk.prompt_progress) this.progress = chunk.prompt_progress;
    if (chunk.prompt_token_ids) this.promptIds = chunk.prompt_token_ids;
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.timings) this.timings = chunk.timings;
    if (chunk.rapt) {
      if (chunk.rapt.seed !== undefined) this.seed = chunk.rapt.seed;
      if (chunk.rapt.hash) this.hash = chunk.rapt.hash;
      if (chunk.rapt.finish) this.detail = chunk.rapt.finish;
      if (chunk.rapt.look) this.look = chunk.rapt.look;
    }
    const choice = chunk.choices && chunk.choices[0];
    if (!choice) return;
    if (choice.prompt_token_ids) this.promptIds = choice.prompt_token_ids;
    const delta = choice.delta || {};
    const reasoning = delta.reasoning_content || delta.reasoning || '',
          text = choice.text ?? delta.content ?? '';
    this.reasoning += reasoning;
    this.text += text;
    const logs = choice.logprobs;
    if (logs && logs.content)
      for (const t of logs.content)
        this.tokens.push({
          text: textOf(t.token, t.bytes),
          id: null,
          logprob: t.logprob,
          top: (t.top_logprobs || []).map((o) => [textOf(o.token, o.bytes), o.logprob])
        });
    else if (logs && logs.tokens)
      logs.tokens.forEach((piece, i) => {
        const top = logs.top_logprobs && logs.top_logprobs[i];
        this.tokens.push({
          text: piece,
          id: null,
          logprob: logs.token_logprobs[i],
          top: top ? Object.entries(top).sort((a, b) => b[1] - a[1]).slice(0, kTop) : []
        });
      });
    if (choice.token_ids) {
      this.ids.push(...choice.token_ids);
      for (let i = Math.max(0, this.tokens.length - choice.token_ids.length); i < this.tokens.length; ++i)
        if (this.ids[i] !== undefined) this.tokens[i].id = this.ids[i];
    }
    if (text || reasoning || choice.token_ids) {
      this.began ||= now;
      this.last = now;
    }
    if (choice.finish_reason) this.finish = choice.finish_reason;
  }

  // Tokens a second: the server's figure, or what is seen here.
  speed() {
    if (this.timings && this.timings.predicted_per_second) return this.timings.predicted_per_second;
    const n = this.ids.length || this.tokens.length;
    return n > 1 && this.last > this.began ? (n - 1) * 1000 / (this.last - this.began) : 0;
  }
  used() {
    if (this.usage) return this.usage.total_tokens ?? this.usage.prompt_tokens + this.usage.completion_tokens;
    return (this.promptIds ? this.promptIds.length : 0) + this.ids.length;
  }
}

// A token that is part of a character only: its bytes, so that nothing looks the same that is not.
function textOf(text, bytes) {
  if (!text.includes('\ufffd') || !bytes) return text;
  return bytes.map((b) => `<${b.toString(16).padStart(2, '0')}>`).join('');
}

// A stream of /v1/chat/completions or /v1/completions.
//   start(path, body)  asks;   resume(id)  goes on with a stream that this page left;   stop()  ends it
//   change()           called after each piece of the network;   live(frame)   `rapt.live` (see state.look)
export class Run {
  constructor({answer = new Answer(), change = () => {}, live = () => {}, name = () => {}} = {}) {
    Object.assign(
        this, {answer, change, live, name, stream: '', stopped: false, control: new AbortController()});
  }

  async start(path, body) {
    const response = await ask(path, {
      signal: this.control.signal,
      body: {
        ...body,
        stream: true,
        stream_options: {include_usage: true},
        return_progress: true,
        return_token_ids: true,
        rapt: {...body.rapt, resume: true},
      }
    });
    this.stream = response.headers.get('rapt-stream') || '';
    if (this.stream) this.name(this.stream);
    await this.read(response);
  }
  async resume(id) {
    this.stream = id;
    await this.read(await ask(
        `/v1/stream/${encodeURIComponent(id)}?from=${this.answer.events}`, {signal: this.control.signal}));
  }

  async read(response) {
    let done = false;
    try {
      await readEvents(response, (data) => {
        if (data === '[DONE]') {
          done = true;
          return;
        }
        const chunk = JSON.parse(data);
        if (chunk.rapt && chunk.rapt.live)
          this.live(chunk.rapt.live, this.answer);  // not among the counted events
        else {
          ++this.answer.events;
          this.answer.take(chunk);
        }
        this.change();
      });
    } catch (error) {
      if (this.stopped || error.name === 'AbortError' || error instanceof ApiError) throw error;
      throw new ApiError('cut');
    }
    if (!done && !this.answer.finish) throw new ApiError('cut');
  }

  // The server frees what the answer holds at its next step.
  stop() {
    if (this.stopped) return;
    this.stopped = true;
    if (this.stream) ask(`/v1/stream/${encodeURIComponent(this.stream)}`, {method: 'DELETE'}).catch(() => {});
    this.control.abort();
  }
}

// The fields of a request that say how tokens are drawn; what is null is left to the server.
export function samplingFields(s) {
  const out = {};
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'max_tokens', 'seed'])
    if (s[name] !== null && s[name] !== undefined) out[name] = s[name];
  if (s.stop && s.stop.length) out.stop = s.stop;
  return out;
}
export const tokenFields = (chat) => chat ? {logprobs: true, top_logprobs: kTop} : {logprobs: kTop};
