// Requests to the server; the token is kept in memory, or in sessionStorage if the reader chooses so, and is sent in a header only.

const KEY = "drivebay-token";
/** Deadline of a request without a stream, milliseconds. */
const LIMIT = 20000;

let token = null;
try { token = sessionStorage.getItem(KEY); } catch { /* storage is not permitted: memory only */ }

/** A failed request; `status` is 0 if there was no answer. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Returns true if there is a token. */
export const hasToken = () => token !== null;

/** Sets the token; with `keep` it outlives a reload, until the tab is closed. */
export function setToken(value, keep) {
  token = value;
  try {
    if (value !== null && keep) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch { /* storage is not permitted: memory only */ }
}

/** Fetches with the token from `path`, relative to the page as behind a proxy; throws [ApiError] unless the answer is a success. */
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
  } catch { /* not JSON */ }
  return `the server answered ${response.status}`;
}

/** Fetches JSON as [request] does, within [LIMIT]. */
export async function json(path, signal) {
  const limit = AbortSignal.timeout(LIMIT);
  const response = await request(path, { signal: signal ? AbortSignal.any([signal, limit]) : limit });
  try {
    return await response.json();
  } catch {
    throw new ApiError(0, "the answer is not complete");
  }
}
