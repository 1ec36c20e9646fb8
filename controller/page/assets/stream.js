// The stream of changes: text/event-stream read by fetch, since EventSource cannot send a token.

import { ApiError, json, request } from "./api.js";

/** Longest time without data until the connection counts as lost, milliseconds; the server sends a comment every 15 s. */
const SILENCE = 40000;
/** Delays between attempts, seconds, with a jitter of 25 % so that many pages do not reconnect at once. */
const BACKOFF = [1, 2, 4, 8, 15, 30];
/** Limit of the length of an event, characters. */
const LONGEST = 64 << 20;

/** Returns a parser of text/event-stream that takes chunks cut anywhere and calls `event(name, data)`; it ignores comments, ids and retry times. */
export function parser(event) {
  let rest = "";
  let name = "";
  let data = [];
  return (chunk) => {
    rest += chunk;
    if (rest.length > LONGEST) throw new ApiError(0, "an event is too long");
    // A CR at the end of a chunk may be the first half of a CRLF.
    const end = rest.endsWith("\r") ? rest.length - 1 : rest.length;
    const lines = rest.slice(0, end).split(/\r\n|\n|\r/);
    rest = lines.pop() + rest.slice(end);
    for (const line of lines) {
      if (line === "") {
        if (data.length > 0) event(name || "message", data.join("\n"));
        else if (name) event(name, "");
        name = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
  };
}

/**
 * Follows the fleet and reconnects after a failure, with the changes since the last one. `handlers`: `fleet(body)` for each answer of
 * /api/fleet, `change(body)` for each later change, `heard()` for any data of the server, and `state({name, since, retryAt, reason})`,
 * with name "starting", "live", "lost", "paused", or "refused" with an [ApiError] as `error`.
 */
export class Stream {
  constructor(handlers) {
    this.handlers = handlers;
    this.attempt = 0;
    this.lostSince = null;
    this.abort = null;
    this.timer = null;
    this.running = false;
    this.revision = null;
  }

  /** Stops and discards the revision, since another reader may see other claims. */
  forget() {
    this.stop();
    this.revision = null;
    this.lostSince = null;
    this.attempt = 0;
  }

  /** Connects without a delay. */
  start() {
    this.stop();
    this.running = true;
    this.connect();
  }

  /** Closes the connection and ends all attempts. */
  stop() {
    this.running = false;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
  }

  /** Closes the connection of a hidden page until [start]. */
  pause() {
    if (!this.running) return;
    this.stop();
    this.handlers.state({ name: "paused" });
  }

  async connect() {
    clearTimeout(this.timer);
    const abort = new AbortController();
    this.abort = abort;
    if (this.lostSince === null) this.handlers.state({ name: "starting" });
    try {
      const began = Date.now();
      await this.follow(abort);
      if (!this.running || this.abort !== abort) return;
      // The server ends each stream after an hour; an early end is a failure.
      if (Date.now() - began < 5000) throw new ApiError(0, "the server ended the connection");
      this.connect();
    } catch (error) {
      // Stopped by [stop], or replaced by a newer connection.
      if (!this.running || this.abort !== abort) return;
      abort.abort();
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
        this.stop();
        this.handlers.state({ name: "refused", error });
        return;
      }
      this.later(error instanceof ApiError ? error.message : "the connection was lost");
    }
  }

  later(reason) {
    this.lostSince ??= Date.now() / 1000;
    const wait = BACKOFF[Math.min(this.attempt, BACKOFF.length - 1)] * (0.75 + Math.random() / 2);
    this.attempt += 1;
    this.handlers.state({ name: "lost", since: this.lostSince, retryAt: Date.now() / 1000 + wait, reason });
    this.timer = setTimeout(() => this.connect(), wait * 1000);
  }

  // Returns when the server ends the stream, and throws when the connection is lost.
  async follow(abort) {
    if (this.revision === null) await this.refetch(abort);
    const response = await request(`api/changes?since=${this.revision}`, { signal: abort.signal, accept: "text/event-stream" });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    this.attempt = 0;
    this.lostSince = null;
    this.handlers.state({ name: "live" });
    let fail;
    const failed = new Promise((_, reject) => { fail = reject; });
    failed.catch(() => {});
    let watch;
    const rearm = () => {
      clearTimeout(watch);
      watch = setTimeout(() => fail(new ApiError(0, `no data from the server for ${SILENCE / 1000} s`)), SILENCE);
    };
    // Changes that arrive while the fleet is fetched again; null while it is not.
    let waiting = null;
    const feed = parser((name, data) => {
      if (name === "reset" && waiting === null) {
        waiting = [];
        this.refetch(abort).then(() => {
          const kept = waiting;
          waiting = null;
          kept.forEach((body) => this.apply(body));
        }, fail);
      } else if (name === "change") {
        const body = JSON.parse(data);
        if (waiting) waiting.push(body);
        else this.apply(body);
      }
    });
    try {
      for (;;) {
        rearm();
        const { done, value } = await Promise.race([reader.read(), failed]);
        if (done) return;
        this.handlers.heard();
        feed(value);
      }
    } finally {
      clearTimeout(watch);
      reader.cancel().catch(() => {});
    }
  }

  async refetch(abort) {
    const body = await json("api/fleet", abort.signal);
    this.revision = body.revision;
    this.handlers.fleet(body);
  }

  apply(body) {
    if (body.revision <= this.revision) return;
    this.revision = body.revision;
    this.handlers.change(body);
  }
}
