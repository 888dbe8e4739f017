//! Every limit in one place: name, value, unit, reason.

/// Most bytes one NBD request may move. The largest payload the NBD specification lets a client
/// assume without asking; libnbd and the kernel send at most this much.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Most bytes of request buffers in flight in the whole process. Over it, connections stop
/// reading from their sockets until replies have left.
pub const BUFFER_BYTES_MAX: usize = 128 << 20;

/// A request up to this long, in bytes, of a connection (or FUSE thread) that holds no other never
/// waits for memory, so that clients who hold all of it can't keep others out; it may go over
/// `BUFFER_BYTES_MAX` by as much for each. The most that the kernel's FUSE and nbd clients ask for.
pub const BUFFER_BYTES_ALWAYS: usize = 1 << 20;

/// Largest LUKS2 header copy (binary header and JSON area). Source: LUKS2 on-disk format, table
/// of metadata sizes.
pub const LUKS2_HEADER_BYTES_MAX: u64 = 4 << 20;

/// Most iterations of PBKDF2 for one key slot or digest, over all blocks of its output. cryptsetup
/// measures iterations by time (2 seconds unless told), and the fastest CPUs do about 10 million a
/// second: this is 100 seconds of them, minutes of a common one. Headers that ask for more (a
/// damaged one may ask for 2^32 - 1) are refused by name instead of spinning for hours.
pub const PBKDF2_ITERATIONS_MAX: u64 = 1 << 30;

/// Most memory in KiB that an Argon2 key slot may ask for: cryptsetup's own limit, 4 GiB.
pub const ARGON2_MEMORY_KIB_MAX: u32 = 4 << 20;

/// Most KiB that an Argon2 key slot may fill over all passes: 256 passes over 4 GiB. As for
/// PBKDF2, minutes of the fastest machines, whose four lanes fill about 10 GiB a second.
pub const ARGON2_WORK_KIB_MAX: u64 = 1 << 30;

/// What a pass counts at least against [`ARGON2_WORK_KIB_MAX`], in KiB: starting its four slices
/// costs about as much as filling this.
pub const ARGON2_PASS_KIB_MIN: u32 = 512;

/// Most lanes of an Argon2 key slot. cryptsetup writes at most 4; others' headers may say more.
pub const ARGON2_LANES_MAX: u32 = 64;

/// Longest key derived by a KDF, in bytes: far over any volume key (64 keys of 32 bytes and a
/// seed is the longest that dm-crypt knows).
pub const KDF_OUTPUT_BYTES_MAX: usize = 4096;

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

/// Most bytes of an option over that limit that are read past to answer it; a longer one ends the
/// connection.
pub const HANDSHAKE_DRAIN_BYTES_MAX: u32 = 1 << 20;

/// Requests of one connection that may be in flight or wait to be taken by the client; the next
/// is read when one has left.
pub const CONNECTION_REQUESTS_MAX: usize = 128;
/// Most payload bytes of one connection's requests in flight or waiting to be taken by the
/// client: one request of the largest size, a quarter of what the process has.
pub const CONNECTION_BYTES_MAX: u64 = REQUEST_BYTES_MAX as u64;

/// Bytes of one connection's receive buffer: takes in a full queue of small writes, and many
/// times that of reads, by one call.
pub const RECEIVE_BYTES: usize = 128 << 10;
/// Bytes of replies that are gathered before they are sent.
pub const SEND_BATCH_BYTES: usize = 256 << 10;
/// Bytes of requests that a connection may hold while its socket takes no more replies. What is
/// read and decrypted further ahead of the client grows cold before it is sent.
pub const SEND_AHEAD_BYTES: u64 = 1 << 20;
/// Bytes of replies that the kernel is asked to keep for a client on a unix socket (it grants at
/// most `net.core.wmem_max`). TCP sockets size their own.
pub const SOCKET_SEND_BYTES: usize = 1 << 20;
/// Longest time in microseconds that a lane looks for the next request before it sleeps: under
/// what going to sleep and waking up cost on common machines.
pub const SPIN_MICROSECONDS_MAX: u64 = 30;
/// Most extents in one BLOCK_STATUS reply; the client asks again for what is left.
pub const EXTENTS_MAX: usize = 8192;

/// Seconds after which a client that holds request memory and moves no byte is cut off, if
/// others wait for memory.
pub const STALL_SECONDS_MAX: u64 = 5;
/// Seconds a server that was told to end waits for requests in flight.
pub const DRAIN_SECONDS_MAX: u64 = 3;

/// Bytes of the stack of a thread that runs requests: a connection's, or a worker. Address space
/// only, until it is used: optimised code needs a few KiB, unoptimised kernels of the wider ciphers
/// some hundred.
pub const STACK_BYTES: usize = 1 << 20;

/// Connections of one server at a time.
pub const CONNECTIONS_MAX: usize = 1024;

/// Longest key in a LUKS key slot, in bytes: cryptsetup's largest `--key-size`, 4096 bits. It
/// bounds what a key slot's area is read into (4000 times as much).
pub const LUKS_KEY_BYTES_MAX: u32 = 512;

/// Longest key of a plain volume in bytes: loop-AES's 65 keys, each as long as two of AES-256.
pub const PLAIN_KEY_BYTES_MAX: usize = 65 * 64;

/// Largest LUKS2 key slots area, in bytes. Source: LUKS2 on-disk format, `keyslots_size`
/// (cryptsetup's own limit is the same).
pub const LUKS2_KEYSLOTS_BYTES_MAX: u64 = 128 << 20;

/// Deepest nesting of a LUKS2 JSON area: what json-c, cryptsetup's parser, takes.
pub const LUKS2_JSON_DEPTH_MAX: usize = 32;

/// Most LUKS2 key slots, digests and tokens: ids are 0 to 31. Source: LUKS2 on-disk format.
pub const LUKS2_OBJECTS_MAX: u32 = 32;

/// Seconds after which the kernel's nbd driver sends a request again on another connection: over
/// what a busy disk takes, and short enough for a person to wait when a server was started again.
pub const NBD_REQUEST_SECONDS: u64 = 30;

/// Seconds that requests may lie unread while their connection is behind, before it is asked
/// whether the client still wants them. Well under [`NBD_REQUEST_SECONDS`].
pub const UNREAD_SECONDS_MAX: u64 = 5;

/// Seconds that requests of a kernel nbd device wait for a killed server to be started again; they
/// fail after that.
pub const NBD_RECONNECT_SECONDS: u64 = 300;
