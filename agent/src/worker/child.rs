//! The worker's side: reads calls from descriptor 0, runs them one after another, exits
//! when the agent hangs up or after a while without work.
