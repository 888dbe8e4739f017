//! `luks status`: what is open, as what, and what it has done.

use serde_json::{Value, json};

use super::DONE;
use crate::control::{Condition, Request, State, VolumeFolder, call, find, look};
use crate::error::{Error, Result};

/// Shows the volume NAME, or all that are open
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  luks status data --json | jq .requests")]
pub(crate) struct StatusArgs {
    /// The volume's name
    name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    pub(crate) fn run(self) -> Result<u8> {
        if let Some(name) = &self.name {
            find(name)?;
        }
        let found: Vec<Value> = look()
            .iter()
            .filter(|(folder, _)| {
                self.name
                    .as_deref()
                    .is_none_or(|name| folder.name() == name)
            })
            .map(|(folder, condition)| describe(folder, condition))
            .collect();
        match &self.name {
            Some(name) => {
                let volume = found.first().ok_or_else(|| gone(name))?;
                self.print(volume, || println!("{}", in_words(volume)));
            }
            None => {
                let list = json!({ "schema": 1, "volumes": found });
                self.print(&list, || {
                    found
                        .iter()
                        .for_each(|volume| println!("{}", in_a_line(volume)))
                });
            }
        }
        Ok(DONE)
    }

    fn print(&self, value: &Value, words: impl FnOnce()) {
        if self.json {
            println!("{value:#}");
        } else {
            words();
        }
    }
}

fn gone(name: &str) -> Error {
    Error::device("its server was gone; what it left is cleared")
        .on(name)
        .hint("luks open")
}

fn describe(folder: &VolumeFolder, condition: &Condition) -> Value {
    match condition {
        Condition::Live => call(folder, &Request::Status).unwrap_or_else(|_| {
            // It has no control socket before it is unlocked.
            json!({ "schema": 1, "name": folder.name(), "state": "opening" })
        }),
        Condition::Waits(state, user) => dead(folder, state, "waiting", user),
        Condition::Stuck(state, why) => dead(folder, state, "dead", why),
    }
}

fn dead(folder: &VolumeFolder, state: &State, condition: &str, note: &str) -> Value {
    json!({
        "schema": 1,
        "name": folder.name(),
        "state": condition,
        "device": state.device,
        "attach": state.attach,
        "image": state.image,
        "pid": state.pid,
        "uuid": state.uuid,
        "read_only": state.read_only,
        "notes": [format!("its server is gone: {note}")],
    })
}

/// What a person wants to know of one volume.
fn in_words(volume: &Value) -> String {
    let text = |field: &str| match &volume[field] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let mut lines = vec![format!(
        "{} is {}",
        text("name").unwrap_or_default(),
        text("state").unwrap_or_default()
    )];
    let mut line = |label: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("  {:<15}{value}", format!("{label}:"))));
    };
    line("device", text("device"));
    line("NBD URI", text("uri"));
    line("image", text("image"));
    line("format", text("format"));
    line("cipher", text("cipher"));
    line("key bits", text("key_bits"));
    line(
        "sector size",
        text("sector_size_bytes").map(|n| format!("{n} bytes")),
    );
    line("size", text("size_bytes").map(|n| format!("{n} bytes")));
    line(
        "mode",
        volume["read_only"].as_bool().map(|ro| mode(ro).to_owned()),
    );
    line("in use", text("in_use"));
    line("engine", text("engine"));
    line("process", text("pid"));
    line(
        "requests",
        volume["requests"].as_object().map(|counters| {
            let counters = counters
                .iter()
                .map(|(kind, count)| format!("{kind} {count}"));
            counters.collect::<Vec<_>>().join(", ")
        }),
    );
    line("bytes read", text("bytes_read"));
    line("bytes written", text("bytes_written"));
    for note in volume["notes"].as_array().into_iter().flatten() {
        line("note", note.as_str().map(str::to_owned));
    }
    lines.join("\n")
}

fn in_a_line(volume: &Value) -> String {
    let text = |field: &str| volume[field].as_str().unwrap_or("-").to_owned();
    let at = if volume["device"].is_string() {
        text("device")
    } else {
        text("uri")
    };
    [text("name"), text("state"), at, text("image")].join("\t")
}

fn mode(read_only: bool) -> &'static str {
    if read_only {
        "read-only"
    } else {
        "read and write"
    }
}
