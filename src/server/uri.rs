//! NBD URIs of listeners. Source: the NBD URI specification (`doc/uri.md` of the
//! NetworkBlockDevice project) and RFC 3986.

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `nbd+unix:///EXPORT?socket=PATH`.
pub(super) fn unix(path: &Path, export: &str) -> String {
    let socket = encoded(path.as_os_str().as_bytes(), b"/");
    format!(
        "nbd+unix:///{}?socket={socket}",
        encoded(export.as_bytes(), b"")
    )
}

/// `nbd://HOST:PORT/EXPORT`.
pub(super) fn tcp(address: SocketAddr, export: &str) -> String {
    format!("nbd://{address}/{}", encoded(export.as_bytes(), b""))
}

/// Percent-encodes all but the characters that never have a meaning in a URI, and `kept`.
fn encoded(bytes: &[u8], kept: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string succeeds");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_encoded_where_they_must_be() {
        assert_eq!(unix(Path::new("/tmp/s"), ""), "nbd+unix:///?socket=/tmp/s");
        assert_eq!(
            unix(Path::new("/tmp/a b&c#d"), "x/ä?"),
            "nbd+unix:///x%2F%C3%A4%3F?socket=/tmp/a%20b%26c%23d"
        );
        let v4 = "127.0.0.1:10809".parse().unwrap();
        let v6 = "[::1]:10809".parse().unwrap();
        assert_eq!(tcp(v4, "disk"), "nbd://127.0.0.1:10809/disk");
        assert_eq!(tcp(v6, ""), "nbd://[::1]:10809/");
    }
}
