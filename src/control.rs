//! The control socket of a background server, and the state folder it lives in.
