//! Listeners, connections, signals: a device served until it is told to end.
