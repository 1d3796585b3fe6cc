//! The target: portals, login, sessions, connections, and the threads that drive them.
