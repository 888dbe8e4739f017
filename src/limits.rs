//! Every limit in one place: name, value, unit, reason.

/// Most bytes one NBD request may move. The largest payload the NBD specification lets a client
/// assume without asking; libnbd and the kernel send at most this much.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Most bytes of request buffers in flight in the whole process. Over it, connections stop
/// reading from their sockets until replies have left.
pub const BUFFER_BYTES_MAX: usize = 128 << 20;

/// Largest LUKS2 header copy (binary header and JSON area). Source: LUKS2 on-disk format, table
/// of metadata sizes.
pub const LUKS2_HEADER_BYTES_MAX: u64 = 4 << 20;

/// Most iterations of PBKDF2 that are run for a key slot or digest: over this, a header asks for
/// more than half an hour of one CPU.
pub const PBKDF2_ITERATIONS_MAX: u32 = u32::MAX;

/// Most memory in KiB that an Argon2 key slot may ask for: cryptsetup's own limit, 4 GiB.
pub const ARGON2_MEMORY_KIB_MAX: u32 = 4 << 20;

/// Longest passphrase typed or piped, in bytes: cryptsetup's limit.
pub const PASSPHRASE_BYTES_MAX: usize = 512;

/// Longest key file read, in bytes: cryptsetup's default limit (8 MiB).
pub const KEYFILE_BYTES_MAX: u64 = 8 << 20;

/// Seconds a client may take for the whole handshake.
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;

/// Most options in one handshake, and the longest option in bytes: far over what any client sends.
pub const HANDSHAKE_OPTIONS_MAX: u32 = 64;
/// Longest handshake option in bytes (an export name of 4096, plus meta contexts).
pub const HANDSHAKE_OPTION_BYTES_MAX: u32 = 64 << 10;

/// Requests of one connection that may be in flight; the next is read when one is answered.
pub const CONNECTION_REQUESTS_MAX: usize = 128;

/// Connections of one server at a time.
pub const CONNECTIONS_MAX: usize = 1024;
