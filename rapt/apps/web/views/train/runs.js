// SPDX-License-Identifier: Apache-2.0
// Trainings as they are told: GET /v1/runs, and the events of each (apps/server/train_events.h) as columns.
import {ask, askJson} from '../../api.js';
import {readEvents} from '../../sse.js';

const kAgain = 1500;  // ms until a server that went away is asked again

export class Training {
  constructor(entry) {
    Object.assign(this, {
      id: entry.id,
      entry,
      begin: null,
      end: null,
      gone: false,    // the server keeps it no more
      events: [],     // as they came
      step: [],       // of each step: number, loss, norm of the gradient, rate
      loss: [],
      norm: [],
      rate: [],
      speed: {x: [], y: []},  // tokens a second
      held: {x: [], y: [], accuracy: []},
      health: [],     // {step, layers}
      heads: [],      // {step, values, labels, maps}
      samples: [],    // {step, text}
      notes: [],
    });
  }

  get running() { return !this.end && !this.gone; }
  get active() { return this.running && (this.entry.running || this.events.length > 0); }
  get name() {
    const {name, recipe} = this.entry;
    return name || recipe;
  }
  get steps() { return this.entry.steps || (this.begin && this.begin.steps) || 1; }
  get at() { return this.step.length ? this.step[this.step.length - 1] : 0; }

  take(event) {
    this.events.push(event);
    // A run that went back to a saved state has steps once more: the later ones count.
    const drop = (list, step, ...more) => {
      while (list.length && (list[list.length - 1].step ?? list[list.length - 1]) >= step) {
        list.pop();
        for (const other of more) other.pop();
      }
    };
    switch (event.kind) {
      case 'begin': this.begin = event; break;
      case 'steps':
        drop(this.step, event.step[0], this.loss, this.norm, this.rate);
        for (const key of ['step', 'loss', 'norm', 'rate'])
          for (const x of event[key]) this[key].push(x);
        if (event.tokens_per_second) {
          drop(this.speed.x, this.at, this.speed.y);
          this.speed.x.push(this.at);
          this.speed.y.push(event.tokens_per_second);
        }
        break;
      case 'judge':
        drop(this.held.x, event.step, this.held.y, this.held.accuracy);
        this.held.x.push(event.step);
        this.held.y.push(event.loss);
        this.held.accuracy.push(event.accuracy);
        break;
      case 'health':
      case 'heads':
      case 'sample': {
        const list = this[event.kind === 'sample' ? 'samples' : event.kind];
        drop(list, event.step);
        list.push(event);
        break;
      }
      case 'note': this.notes.push(event); break;
      case 'end': this.end = event; break;
    }
  }

  // Reads its events until there are no more; goes on where it was when the connection breaks.
  async follow(changed) {
    if (this.control) return;
    this.control = new AbortController();
    const {signal} = this.control;
    while (this.running && !signal.aborted) {
      try {
        const path = `/v1/runs/${encodeURIComponent(this.id)}?from=${this.events.length}`;
        await readEvents(await ask(path, {signal}), (data) => {
          this.take(JSON.parse(data));
          changed(this);
        });
      } catch (error) {
        if (error.status === 404) this.gone = true;
        if (error.status === 401) break;
      }
      if (this.running && !signal.aborted) await new Promise((done) => setTimeout(done, kAgain));
    }
    this.control = null;
    changed(this);
  }
  leave() {
    if (this.control) this.control.abort();
  }
}

export const listRuns = async () =>
    (await askJson('/v1/runs')).data.filter((entry) => entry.kind === 'train');
export const startRun = (body) => askJson('/v1/train/run', {body});
export const stopRun = (id) => ask(`/v1/runs/${encodeURIComponent(id)}`, {method: 'DELETE'});
