//! `drivebay-agent`.

fn main() {}
