//! Crypto engines: what this machine has, and why not the rest.
