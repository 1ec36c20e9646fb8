//! Drivebay's controller: the CSI Controller service over agents.
