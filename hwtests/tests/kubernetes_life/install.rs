//! Drivebay installed with other values, uninstalled and installed again.
