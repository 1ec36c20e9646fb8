// Fetches of a view: one at a time, again after an interval while the view is shown, and none while the page is hidden.

import { json } from "./api.js";

/** Fetches a path, draws its answer, and reports why there is none. */
export class Poll {
  /** `path`: a function that returns what to fetch; `every`: milliseconds. */
  constructor({ path, every, draw, failed }) {
    Object.assign(this, { path, every, draw, failed, shown: false });
  }

  show() {
    this.shown = true;
    this.fetch();
  }

  hide() {
    this.shown = false;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  later(time) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(), time);
  }

  async fetch() {
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    try {
      if (!document.hidden) {
        const body = await json(this.path(), abort.signal);
        if (this.abort === abort) this.draw(body);
      }
    } catch (error) {
      // A later fetch has replaced this one, or the view is hidden.
      if (this.abort !== abort || abort.signal.aborted) return;
      this.failed(error);
    }
    if (this.shown && this.abort === abort) this.later(this.every);
  }
}
