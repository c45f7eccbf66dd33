// SPDX-License-Identifier: Apache-2.0
// Runs of experiments: the one that is computed now (the server takes one at a time), and the last result of
// each experiment, also of runs that were begun before this page was loaded.
import {ApiError, ask, askJson} from '../../api.js';
import {readEvents} from '../../sse.js';

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// change(): something is new. A run: {id, experiment, seed, effort, progress: {what, share, left} | null,
// result, stopping, how: '' | 'done' | 'stopped' | 'failed' | 'lost', code, error: what the server says,
// away}
export class Runs {
  constructor(change) {
    this.change = change;
    this.now = null;         // the run that is computed, or null
    this.other = false;      // a training has the server
    this.last = new Map();   // experiment → its last run that has ended
    this.known = new Map();  // experiment → {id, …} of one that ended before this page was loaded
  }

  // What the server knows: for a page that was loaded anew, and after it said that it is busy.
  async find() {
    const {data} = await askJson('/v1/runs');
    this.other = data.some((r) => r.running && r.kind !== 'lab');
    clearTimeout(this.again);
    if (this.other) this.again = setTimeout(() => this.find().catch(() => {}), 3000);
    for (const r of [...data].reverse())
      if (r.kind === 'lab' && !r.running) this.known.set(r.experiment, r);
    const mine = data.find((r) => r.kind === 'lab' && r.running);
    if (mine && !(this.now && this.now.id === mine.id)) this.follow(this.begun(mine));
    this.change();
  }

  begun({id, experiment, seed, effort}) {
    this.now = {
      id,
      experiment,
      seed,
      effort,
      progress: null,
      result: null,
      stopping: false,
      how: '',
      code: '',
      error: '',
      away: false
    };
    return this.now;
  }

  // Throws ApiError.
  async start(experiment, seed, effort) {
    try {
      const {id} = await askJson('/v1/lab/run', {body: {experiment, seed, effort}});
      this.other = false;
      this.follow(this.begun({id, experiment, seed, effort}));
    } catch (error) {
      if (error.code === 'lab_busy') await this.find();
      throw error;
    } finally {
      this.change();
    }
  }

  async stop() {
    const run = this.now;
    if (!run) return;
    run.stopping = true;
    this.change();
    try {
      await ask(`/v1/runs/${run.id}`, {method: 'DELETE'});
    } catch {
      run.stopping = false;  // it can be asked again
    }
    this.change();
  }

  // The last run of an experiment that has ended, or null; one that this page did not see is fetched.
  async ended(experiment) {
    const known = this.known.get(experiment), last = this.last.get(experiment);
    if (last || !known) return last || null;
    const run = {...known, progress: null, result: null, how: '', code: '', error: '', away: false};
    try {
      for (const event of await askJson(`/v1/runs/${known.id}?once=1`)) this.take(run, event);
    } catch (error) {
      if (error.status !== 404) throw error;
      this.known.delete(experiment);  // the server keeps the last few
      return null;
    }
    if (!this.last.has(experiment)) this.last.set(experiment, run);
    return this.last.get(experiment);
  }

  take(run, event) {
    if (event.kind === 'progress') {
      const from = run.from && event.done >= run.at.done ? run.from : event;  // a part of its own begins at 0
      const done = event.done - from.done,
            left = done > 0 ? (event.seconds - from.seconds) / done * (event.of - event.done) : null;
      Object.assign(run, {from, at: event});
      run.progress = {what: event.what, share: event.of > 0 ? event.done / event.of : 0, left};
    } else if (event.kind === 'result') {
      run.result = event;
    } else if (event.kind === 'end') {
      Object.assign(run, {how: event.how, code: event.code || '', error: event.error || ''});
    }
  }

  async follow(run) {
    let from = 0, failed = 0;
    while (!run.how) {
      try {
        const reply = await ask(`/v1/runs/${run.id}?from=${from}`);
        await readEvents(reply, (data) => {
          ++from;
          failed = 0;
          run.away = false;
          this.take(run, JSON.parse(data));
          if (!run.how) this.change();
        });
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) run.how = 'lost';
      }
      if (run.how) break;
      run.away = ++failed > 1;
      this.change();
      await pause(Math.min(5, failed));
    }
    this.last.set(run.experiment, run);
    if (this.now === run) this.now = null;
    this.change(run);
  }
}
