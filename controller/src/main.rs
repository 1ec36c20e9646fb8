//! `drivebay-controller`.

fn main() {}
