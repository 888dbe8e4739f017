//! Talking to a volume's server: one JSON line each way over a unix socket that its owner alone
//! may open.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::folder::VolumeFolder;
use crate::error::{Error, ErrorKind, Result};

/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long the other side may take to say its line.
const LINE_WAIT: Duration = Duration::from_secs(5);
/// How long a server may take to act: to write out what a slow disk below takes.
const ACT_WAIT: Duration = Duration::from_secs(600);

/// What a server may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Request {
    /// What it serves, and its counters.
    Status,
    /// To write everything out, take the device down and end.
    Close {
        /// If somebody uses it: when the last user is gone, instead of not at all.
        #[serde(default)]
        deferred: bool,
    },
}

/// Asks the server of `folder`.
///
/// Errors: the server's own; `Busy` where it doesn't answer.
pub fn call(folder: &VolumeFolder, request: &Request) -> Result<Value> {
    let silent = |e: io::Error| {
        Error::busy("its server doesn't answer; it may be opening or closing")
            .on(folder.name())
            .caused_by(e)
    };
    let mut answer = ask(folder, request).map_err(silent)?;
    match answer.get("error").and_then(Value::as_str) {
        None => Ok(answer["answer"].take()),
        Some(text) => {
            let code = answer["exit_code"].as_u64().unwrap_or(4);
            let kinds = [ErrorKind::Usage, ErrorKind::Busy];
            let kind = kinds
                .into_iter()
                .find(|kind| u64::from(kind.exit_code()) == code);
            Err(Error::new(kind.unwrap_or(ErrorKind::Device), text))
        }
    }
}

fn ask(folder: &VolumeFolder, request: &Request) -> io::Result<Value> {
    let mut stream = UnixStream::connect(folder.control_socket())?;
    stream.set_write_timeout(Some(LINE_WAIT))?;
    stream.set_read_timeout(Some(ACT_WAIT))?;
    write_line(&mut stream, &serde_json::to_value(request)?)?;
    let answer = read_line(&mut stream)?;
    if matches!(request, Request::Close { .. }) {
        // Its end is the end of the process: nothing of it is left then.
        let _ = stream.read(&mut [0]);
    }
    Ok(answer)
}

/// One request that came in.
#[derive(Debug)]
pub(super) struct Call {
    stream: UnixStream,
    pub(super) request: Request,
}

impl Call {
    /// Takes one. Whoever is silent or talks nonsense is let go.
    pub(super) fn accept(listener: &UnixListener) -> io::Result<Self> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LINE_WAIT))?;
        stream.set_write_timeout(Some(LINE_WAIT))?;
        let request = serde_json::from_value(read_line(&mut stream)?)?;
        Ok(Self { stream, request })
    }

    /// Answers it; the caller sees its end when the result is dropped.
    pub(super) fn answer(mut self, result: Result<Value>) -> UnixStream {
        let line = match result {
            Ok(answer) => json!({ "answer": answer }),
            Err(e) => json!({ "error": e.to_string(), "exit_code": e.kind().exit_code() }),
        };
        // A caller that left needs no answer.
        let _ = write_line(&mut self.stream, &line);
        self.stream
    }
}

fn read_line(stream: &mut UnixStream) -> io::Result<Value> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

fn write_line(stream: &mut UnixStream, value: &Value) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}
