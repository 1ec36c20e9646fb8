// Calls of the backend. The token is kept in this module's memory, sent in a header only, and in sessionStorage only if the reader asks.

const KEY = "drivebay-token";
/** Longest time for an answer that is not a stream, milliseconds. */
const LIMIT = 20000;

let token = null;
try { token = sessionStorage.getItem(KEY); } catch { /* not permitted: memory alone */ }

/** An answer other than success. `status` is 0 if there was none. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** True if there is a token to send. */
export const hasToken = () => token !== null;

/** Sets the token; `keep`: also for reloads, until the tab is closed. */
export function setToken(value, keep) {
  token = value;
  try {
    if (value !== null && keep) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch { /* not permitted: memory alone */ }
}

/**
 * Fetches with the token. `path` is relative to the page, so that it works behind a port-forward or a proxy's path. Throws [ApiError] unless
 * the answer is a success.
 */
export async function request(path, { signal, accept = "application/json" } = {}) {
  const headers = { Accept: accept };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
    throw new ApiError(0, signal?.aborted ? "no answer in time" : "the server cannot be reached");
  }
  if (!response.ok) throw new ApiError(response.status, await reason(response));
  return response;
}

async function reason(response) {
  try {
    const body = await response.json();
    if (typeof body.error === "string") return body.error.slice(0, 500);
  } catch { /* no JSON */ }
  return `the server answered ${response.status}`;
}

/** Fetches JSON; see [request]. Ends after twenty seconds. */
export async function json(path, signal) {
  const limit = AbortSignal.timeout(LIMIT);
  const response = await request(path, { signal: signal ? AbortSignal.any([signal, limit]) : limit });
  try {
    return await response.json();
  } catch {
    throw new ApiError(0, "the answer is not complete");
  }
}
